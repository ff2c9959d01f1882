// Serve is load-watcher's service over metrics that are in a file: serve FILE ADDRESS.
//
// The file holds a snapshot in load-watcher's dialect. It stands for the provider; caching, encoding and answering are
// load-watcher's. load-watcher knows one port, 2020; the same handlers are served on the address.
package main

import (
	"encoding/json"
	"net/http"
	"os"

	"github.com/paypal/load-watcher/pkg/watcher"

	"trimaran.test/benchmarks/measure"
)

type provider map[string][]watcher.Metric

func (p provider) Name() string         { return "file" }
func (p provider) Health() (int, error) { return 0, nil }
func (p provider) FetchHostMetrics(host string, _ *watcher.Window) ([]watcher.Metric, error) {
	return p[host], nil
}
func (p provider) FetchAllHostsMetrics(*watcher.Window) (map[string][]watcher.Metric, error) {
	return p, nil
}

func main() {
	body, err := os.ReadFile(os.Args[1])
	measure.Check(err)
	var snapshot watcher.WatcherMetrics
	measure.Check(json.Unmarshal(body, &snapshot))
	nodes := provider{}
	for name, node := range snapshot.Data.NodeMetricsMap {
		nodes[name] = node.Metrics
	}
	watcher.NewWatcher(nodes).StartWatching()
	measure.Check(http.ListenAndServe(os.Args[2], http.DefaultServeMux))
}
