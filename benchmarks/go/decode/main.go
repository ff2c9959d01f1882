// Decode says how long Go takes to read a snapshot: decode FILE ROUNDS.
//
// The file holds the body of an answer, in the dialect of load-watcher or in the documented one. It prints JSON: how many
// nodes were found, and the median of each way in milliseconds.
//
//   - client: load-watcher's own client, which the Trimaran plugins use, against a server in this process that answers
//     the bytes. It knows its own dialect alone: of the documented one it finds no node.
//   - gojay: what that client does with the bytes, without HTTP.
//   - json: the standard library into the same types, for either dialect.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/francoispqt/gojay"
	"github.com/paypal/load-watcher/pkg/watcher"
	"github.com/paypal/load-watcher/pkg/watcher/api"
)

type documented struct {
	Timestamp int64                          `json:"timestamp"`
	Window    watcher.Window                 `json:"window"`
	Source    string                         `json:"source"`
	Data      map[string]watcher.NodeMetrics `json:"data"`
}

type result struct {
	Nodes        int     `json:"nodes"`
	Milliseconds float64 `json:"ms"`
}

func main() {
	body, err := os.ReadFile(os.Args[1])
	check(err)
	rounds, err := strconv.Atoi(os.Args[2])
	check(err)
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
		_, _ = response.Write(body)
	}))
	defer server.Close()
	client, err := api.NewServiceClient(server.URL)
	check(err)

	results := map[string]result{
		"client": median(rounds, func() int {
			metrics, err := client.GetLatestWatcherMetrics()
			check(err)
			return len(metrics.Data.NodeMetricsMap)
		}),
		"gojay": median(rounds, func() int {
			metrics := watcher.WatcherMetrics{Data: watcher.Data{NodeMetricsMap: map[string]watcher.NodeMetrics{}}}
			decoder := gojay.BorrowDecoder(bytes.NewReader(body))
			defer decoder.Release()
			check(decoder.Decode(&metrics))
			return len(metrics.Data.NodeMetricsMap)
		}),
		"json": median(rounds, func() int {
			if bytes.Contains(body[:min(len(body), 1000)], []byte(`"NodeMetricsMap"`)) {
				var metrics watcher.WatcherMetrics
				check(json.Unmarshal(body, &metrics))
				return len(metrics.Data.NodeMetricsMap)
			}
			var metrics documented
			check(json.Unmarshal(body, &metrics))
			return len(metrics.Data)
		}),
	}
	check(json.NewEncoder(os.Stdout).Encode(results))
}

func median(rounds int, act func() int) result {
	nodes := act()
	took := make([]float64, rounds)
	for round := range took {
		began := time.Now()
		if found := act(); found != nodes {
			check(fmt.Errorf("%d nodes, then %d", nodes, found))
		}
		took[round] = float64(time.Since(began).Microseconds()) / 1000
	}
	slices.Sort(took)
	return result{nodes, took[rounds/2]}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
