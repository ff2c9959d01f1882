// Score says how long the Trimaran plugin LoadVariationRiskBalancing takes to score one pod: score FILE ROUNDS.
//
// The file holds a snapshot in load-watcher's dialect, which the plugin reads as it reads any watcher. Each node of it has
// 64 cores and 256 GiB. It prints JSON: the nodes, what scoring the pod on all of them one after the other
// took, and the sum of the scores.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"

	"github.com/paypal/load-watcher/pkg/watcher"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"sigs.k8s.io/scheduler-plugins/apis/config"
	"sigs.k8s.io/scheduler-plugins/pkg/trimaran/loadvariationriskbalancing"

	"trimaran.test/benchmarks/measure"
)

// handle is what the plugin asks its scheduler for: a place to hear of pods, of which none come.
type handle struct{ framework.Handle }

func (handle) SharedInformerFactory() informers.SharedInformerFactory {
	return informers.NewSharedInformerFactory(nil, 0)
}

type result struct {
	measure.Took
	Nodes int   `json:"nodes"`
	Total int64 `json:"total"`
}

func main() {
	body, rounds, server := measure.Served()
	defer server.Close()

	ctx := context.Background()
	made, err := loadvariationriskbalancing.New(ctx, &config.LoadVariationRiskBalancingArgs{
		TrimaranSpec:            config.TrimaranSpec{WatcherAddress: server.URL},
		SafeVarianceMargin:      1,
		SafeVarianceSensitivity: 1,
	}, handle{})
	measure.Check(err)
	plugin := made.(framework.ScorePlugin)
	nodes, pod := nodesOf(body), examplePod()

	var total int64
	took := measure.Rounds(rounds, func() {
		total = 0
		for _, node := range nodes {
			score, status := plugin.Score(ctx, nil, pod, node)
			if !status.IsSuccess() {
				log.Fatal(status)
			}
			total += score
		}
	})
	measure.Check(json.NewEncoder(os.Stdout).Encode(result{took, len(nodes), total}))
}

func nodesOf(body []byte) []*framework.NodeInfo {
	var snapshot watcher.WatcherMetrics
	measure.Check(json.Unmarshal(body, &snapshot))
	amounts := resources("64", "256Gi")
	var nodes []*framework.NodeInfo
	for name := range snapshot.Data.NodeMetricsMap {
		info := framework.NewNodeInfo()
		info.SetNode(&v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     v1.NodeStatus{Capacity: amounts, Allocatable: amounts},
		})
		nodes = append(nodes, info)
	}
	return nodes
}

func examplePod() *v1.Pod {
	requests := v1.ResourceRequirements{Requests: resources("500m", "1Gi")}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "default"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: requests}}},
	}
}

func resources(cpu, memory string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
}
