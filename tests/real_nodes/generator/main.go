// Open-loop generator of HTTP requests: it sends each at its intended time, however late the answers are, and counts
// latency from that time. Otherwise a slow server would get fewer requests, and its worst times would be missing.
//
// Standard input has phases, one a line: begin and end in seconds after -begin, requests a second, and the URL; or @ and
// a file with URLs, which get the requests in turn. It is read at each request, as the pods of a service change.
// Arrivals within a phase are a Poisson process, the same for the same -seed and number of the phase. Standard output
// has a line for each request: number of the phase, intended time in seconds after -begin, lateness of the sending and
// latency in milliseconds, and the HTTP status, 0 without an answer within 10 s.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

const timeout = 10 * time.Second

type phase struct {
	begin, end, rate float64
	url              string
}

func read(input io.Reader) ([]phase, error) {
	phases := []phase{}
	lines := bufio.NewScanner(input)
	for lines.Scan() {
		var each phase
		if _, err := fmt.Sscan(lines.Text(), &each.begin, &each.end, &each.rate, &each.url); err != nil {
			return nil, fmt.Errorf("phase %q: %w", lines.Text(), err)
		}
		phases = append(phases, each)
	}
	return phases, lines.Err()
}

// resolve returns the URL of a request; "" if the service has none.
func resolve(url string, number int) string {
	file, is := strings.CutPrefix(url, "@")
	if !is {
		return url
	}
	text, _ := os.ReadFile(file)
	urls := strings.Fields(string(text))
	if len(urls) == 0 {
		return ""
	}
	return urls[number%len(urls)]
}

func milliseconds(duration time.Duration) float64 {
	return float64(duration.Microseconds()) / 1000
}

func seconds(number float64) time.Duration {
	return time.Duration(number * float64(time.Second))
}

func main() {
	seed := flag.Uint64("seed", 0, "seed of the arrivals")
	begin := flag.Float64("begin", 0, "time from which phases count, Unix seconds")
	flag.Parse()
	phases, err := read(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	// Sum of two times of the monotonic clock: a step of the wall clock must not become latency.
	now := time.Now()
	start := now.Add(seconds(*begin - float64(now.UnixNano())/1e9))
	// No limit of connections: a request that finds no idle one opens one, and never waits for the answer of another.
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}, Timeout: timeout}
	lines, written := make(chan string, 1<<16), make(chan struct{})
	go func() {
		output := bufio.NewWriter(os.Stdout)
		for line := range lines {
			fmt.Fprintln(output, line)
		}
		output.Flush()
		close(written)
	}()
	var pending sync.WaitGroup
	send := func(number int, at float64, url string, intended time.Time) {
		defer pending.Done()
		late, status := time.Since(intended), 0
		if answer, err := client.Get(url); err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
			if err == nil {
				status = answer.StatusCode
			}
		}
		took := time.Since(intended)
		lines <- fmt.Sprintf("%d,%.6f,%.3f,%.3f,%d", number, at, milliseconds(late), milliseconds(took), status)
	}
	for number, each := range phases {
		pending.Add(1)
		go func() {
			defer pending.Done()
			random := rand.New(rand.NewPCG(*seed, uint64(number)))
			sent := 0
			for at := each.begin + random.ExpFloat64()/each.rate; at < each.end; at += random.ExpFloat64() / each.rate {
				intended := start.Add(seconds(at))
				time.Sleep(time.Until(intended))
				pending.Add(1)
				go send(number, at, resolve(each.url, sent), intended)
				sent++
			}
		}()
	}
	pending.Wait()
	close(lines)
	<-written
}
