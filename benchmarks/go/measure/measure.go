// Package measure times a function on a machine that has other work too.
package measure

import (
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Took is the median of the clock, and the mean of the processor time, of which garbage collection is a part.
type Took struct {
	Milliseconds float64 `json:"ms"`
	Processor    float64 `json:"processor_ms"`
}

// Rounds calls a function several times, after once that does not count.
func Rounds(rounds int, act func()) Took {
	act()
	took := make([]float64, rounds)
	started := processor()
	for round := range took {
		began := time.Now()
		act()
		took[round] = milliseconds(time.Since(began))
	}
	used := milliseconds(processor() - started)
	slices.Sort(took)
	return Took{took[rounds/2], used / float64(rounds)}
}

// Served reads what all of these programs are called with, FILE ROUNDS, and answers every request with the file.
func Served() (body []byte, rounds int, server *httptest.Server) {
	body, err := os.ReadFile(os.Args[1])
	Check(err)
	rounds, err = strconv.Atoi(os.Args[2])
	Check(err)
	server = httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
		_, _ = response.Write(body)
	}))
	return body, rounds, server
}

// Check ends the program on an error.
func Check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func processor() time.Duration {
	var usage syscall.Rusage
	Check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func milliseconds(duration time.Duration) float64 {
	return float64(duration.Nanoseconds()) / 1e6
}
