// The only program in the containers of tests with real kubelets, as their nodes cannot pull images. Without variables
// it waits, and reaps processes whose parent has ended: as the pause container, and as the first process of a node.
//
//	BURN=0.2         cores to use
//	ON=5, OFF=10     seconds in which it uses them, and seconds in which it rests
//	MEMORY=64        MiB to touch
//	AFTER=5          seconds before it touches the memory
//	GROW=4           MiB of it to touch in a second; without, all at once
//	CHANGE=20        seconds from one to the next write to all of this memory, so that it stays in the working set
//	PORT=8080        port of an HTTP server
//	COST=2           milliseconds of processor time for each request
//	START=3          seconds until it listens
//	EXIT=10          seconds until it exits with status 1
//	TERM=2           seconds from SIGTERM to its exit, in which it goes on serving
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

const slice = 100 * time.Millisecond

func number(name string) float64 {
	value, _ := strconv.ParseFloat(os.Getenv(name), 64)
	return value
}

func seconds(name string) time.Duration {
	return time.Duration(number(name) * float64(time.Second))
}

const ofThread = 3 // CLOCK_THREAD_CPUTIME_ID; getrusage is up to a tick of the kernel late

// processorTime returns the time that this thread has used: by the clock it would work less on a full node.
func processorTime() time.Duration {
	var used syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, ofThread, uintptr(unsafe.Pointer(&used)), 0)
	return time.Duration(used.Nano())
}

func spin(duration time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for end := processorTime() + duration; processorTime() < end; {
		for i, x := 0, 1.0; i < 10000; i++ {
			x *= 1.0000001
		}
	}
}

func burn(cores float64, on, off time.Duration) {
	for begin, next := time.Now(), time.Now(); ; {
		if on+off > 0 && time.Since(begin)%(on+off) >= on {
			time.Sleep(slice)
			next = time.Now()
			continue
		}
		spin(time.Duration(cores * float64(slice)))
		// Lost time is made up for within a second; on a full node the rest is lost, as that of a server.
		next = next.Add(slice)
		if late := time.Since(next); late > 10*slice {
			next = time.Now()
		}
		time.Sleep(time.Until(next))
	}
}

func touch(mebibytes int, after, change time.Duration, grow float64) {
	time.Sleep(after)
	memory := make([]byte, mebibytes<<20)
	for i := 0; grow > 0 && i < len(memory); i += 4096 {
		memory[i]++
		if i%(1<<20) == 0 {
			time.Sleep(time.Duration(float64(time.Second) / grow))
		}
	}
	for {
		for i := 0; i < len(memory); i += 4096 {
			memory[i]++
		}
		if change == 0 {
			break
		}
		time.Sleep(change)
	}
	fmt.Println("touched", len(memory)>>20, "MiB")
	for {
		time.Sleep(time.Hour)
		memory[0]++ // it stays in use
	}
}

func serve(port string, cost float64) {
	time.Sleep(seconds("START"))
	work := time.Duration(cost * float64(time.Millisecond))
	http.HandleFunc("/", func(answer http.ResponseWriter, _ *http.Request) {
		spin(work)
		fmt.Fprintln(answer, os.Getenv("HOSTNAME"))
	})
	fmt.Fprintln(os.Stderr, http.ListenAndServe(":"+port, nil))
	os.Exit(1)
}

func reap() {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for range children {
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-end
		fmt.Println("terminates")
		time.Sleep(seconds("TERM"))
		os.Exit(0)
	}()
	if wait := seconds("EXIT"); wait > 0 {
		time.AfterFunc(wait, func() { os.Exit(1) })
	}
	if cores := number("BURN"); cores > 0 {
		go burn(cores, seconds("ON"), seconds("OFF"))
	}
	if mebibytes := number("MEMORY"); mebibytes > 0 {
		go touch(int(mebibytes), seconds("AFTER"), seconds("CHANGE"), number("GROW"))
	}
	if port := os.Getenv("PORT"); port != "" {
		go serve(port, number("COST"))
	}
	fmt.Println("ready")
	reap()
}
