// Open-loop generator of HTTP requests: it sends each at its intended time, however late the answers are, and counts
// latency from that time. Otherwise a slow server would get fewer requests, and its worst times would be missing.
//
// Standard input has phases, one a line: begin and end in seconds, requests a second, and the URL. Arrivals within a
// phase are a Poisson process. Standard output has a line for each request: number of the phase, intended time in Unix
// seconds, lateness of the sending and latency in milliseconds, and the HTTP status, 0 without an answer.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
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
	for lines := bufio.NewScanner(input); lines.Scan(); {
		var each phase
		if _, err := fmt.Sscan(lines.Text(), &each.begin, &each.end, &each.rate, &each.url); err != nil {
			return nil, fmt.Errorf("phase %q: %w", lines.Text(), err)
		}
		phases = append(phases, each)
	}
	return phases, nil
}

func milliseconds(duration time.Duration) float64 {
	return float64(duration.Microseconds()) / 1000
}

func main() {
	seed := flag.Int64("seed", 0, "seed of the arrivals")
	flag.Parse()
	phases, err := read(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
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
	send := func(number int, url string, intended time.Time) {
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
		at := float64(intended.UnixMicro()) / 1e6
		lines <- fmt.Sprintf("%d,%.6f,%.3f,%.3f,%d", number, at, milliseconds(late), milliseconds(took), status)
	}
	start := time.Now()
	for number, each := range phases {
		pending.Add(1)
		go func() {
			defer pending.Done()
			random := rand.New(rand.NewSource(*seed + int64(number)))
			for at := each.begin + random.ExpFloat64()/each.rate; at < each.end; at += random.ExpFloat64() / each.rate {
				intended := start.Add(time.Duration(at * float64(time.Second)))
				time.Sleep(time.Until(intended))
				pending.Add(1)
				go send(number, each.url, intended)
			}
		}()
	}
	pending.Wait()
	close(lines)
	<-written
}
