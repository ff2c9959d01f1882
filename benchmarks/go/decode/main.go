// Decode says how long Go takes to read a snapshot: decode FILE ROUNDS.
//
// The file holds the body of an answer, in the dialect of load-watcher or in the documented one. It prints JSON: how many
// nodes were found each way, and what it took.
//
//   - client: load-watcher's own client, which the Trimaran plugins use, against a server in this process that answers
//     the bytes. It knows its own dialect alone: of the documented one it finds no node.
//   - gojay: what that client does with the bytes, without HTTP.
//   - json: the standard library into the same types, for either dialect.
package main

import (
	"bytes"
	"encoding/json"
	"os"

	"github.com/francoispqt/gojay"
	"github.com/paypal/load-watcher/pkg/watcher"
	"github.com/paypal/load-watcher/pkg/watcher/api"

	"trimaran.test/benchmarks/measure"
)

type documented struct {
	Timestamp int64                          `json:"timestamp"`
	Window    watcher.Window                 `json:"window"`
	Source    string                         `json:"source"`
	Data      map[string]watcher.NodeMetrics `json:"data"`
}

type result struct {
	measure.Took
	Nodes int `json:"nodes"`
}

func main() {
	body, rounds, server := measure.Served()
	defer server.Close()
	client, err := api.NewServiceClient(server.URL)
	measure.Check(err)

	results := map[string]result{
		"client": measured(rounds, func() int {
			metrics, err := client.GetLatestWatcherMetrics()
			measure.Check(err)
			return len(metrics.Data.NodeMetricsMap)
		}),
		"gojay": measured(rounds, func() int {
			metrics := watcher.WatcherMetrics{Data: watcher.Data{NodeMetricsMap: map[string]watcher.NodeMetrics{}}}
			decoder := gojay.BorrowDecoder(bytes.NewReader(body))
			defer decoder.Release()
			measure.Check(decoder.Decode(&metrics))
			return len(metrics.Data.NodeMetricsMap)
		}),
		"json": measured(rounds, func() int {
			if bytes.Contains(body[:min(len(body), 1000)], []byte(`"NodeMetricsMap"`)) {
				var metrics watcher.WatcherMetrics
				measure.Check(json.Unmarshal(body, &metrics))
				return len(metrics.Data.NodeMetricsMap)
			}
			var metrics documented
			measure.Check(json.Unmarshal(body, &metrics))
			return len(metrics.Data)
		}),
	}
	measure.Check(json.NewEncoder(os.Stdout).Encode(results))
}

func measured(rounds int, act func() int) result {
	nodes := 0
	took := measure.Rounds(rounds, func() { nodes = act() })
	return result{took, nodes}
}
