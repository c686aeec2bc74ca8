// A scheduler loop in Go: queue and devices → match → start → observe → explain.
//
//	INTERFERE_TOKEN=... go run loop.go [ADDRESS]
//
// The cluster is simulated: in a scheduler of your own, replace the first section.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "interfere/v1"
)

// --- The simulated cluster ------------------------------------------------------------------------------------------

var queue = []*pb.Job{{Id: "j1", Workload: "gemm"}, {Id: "j2", Workload: "request-server"},
	{Id: "j3", Workload: "gpt-decode"}, {Id: "j4", Workload: "stream"}, {Id: "j5", Workload: "rl-rollout"}}
var devices = []*pb.Device{{Id: "d0", Type: "cpu-core"}, {Id: "d1", Type: "cpu-core"}}

// start starts the jobs of a plan that get a device; the others stay in the queue.
func start(deviceOf map[string]string) {
	byID := map[string]*pb.Device{"d0": devices[0], "d1": devices[1]}
	pending := queue
	queue = nil
	for _, job := range pending {
		if device, found := byID[deviceOf[job.Id]]; found {
			device.Residents = append(device.Residents, job)
		} else {
			queue = append(queue, job)
		}
	}
}

// --- The loop -------------------------------------------------------------------------------------------------------

var run = fmt.Sprintf("go-%d", time.Now().UnixNano())
var pauses = []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 0} // after each of three attempts
var unsent []*pb.Observation                                                    // windows that no server has yet

// send sends a call with the token of the environment and a deadline.
func send(ctx context.Context, method string, request, answer interface{}, connection *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+os.Getenv("INTERFERE_TOKEN"))
	return invoke(ctx, method, request, answer, connection, options...)
}

// stopUnlessItMayPass ends the program on an error that a later attempt cannot mend.
func stopUnlessItMayPass(err error) {
	switch fmt.Println("failed:", status.Code(err)); status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted:
	default:
		log.Fatal(err)
	}
}

// match asks for a plan: three attempts, then the first jobs start alone. The snapshot id makes a repetition safe.
func match(client pb.PolicyServiceClient, number int) *pb.MatchResponse {
	request := &pb.MatchRequest{SnapshotId: fmt.Sprintf("%s-%d", run, number), Pending: queue, Devices: devices}
	for _, pause := range pauses {
		plan, err := client.Match(context.Background(), request)
		if err == nil {
			return plan
		}
		stopUnlessItMayPass(err)
		time.Sleep(pause)
	}
	alone, waiting := &pb.MatchResponse{}, queue
	for _, device := range devices {
		if len(device.Residents) == 0 && len(waiting) > 0 {
			alone.Actions = append(alone.Actions, &pb.Action{JobId: waiting[0].Id, DeviceId: device.Id,
				Kind: pb.ActionKind_ACTION_KIND_START_ALONE, Reason: "the server is away"})
			waiting = waiting[1:]
		}
	}
	return alone
}

// explain prints the best alternative to what was decided for a job. A failure is no reason to stop the loop.
func explain(client pb.PolicyServiceClient, decisionID, jobID string) {
	answer, err := client.Explain(context.Background(), &pb.ExplainRequest{DecisionId: decisionID, JobId: jobID})
	if err != nil {
		fmt.Printf("  %s: no explanation: %v\n", jobID, err)
		return
	}
	for _, other := range answer.Alternatives {
		if !other.Chosen {
			fmt.Printf("  %s else: %v %s\n", jobID, other.Kind, other.PartnerId)
			return
		}
	}
}

// observe reports the windows. Those that are not delivered are kept; their ids make sending them again safe.
func observe(client pb.PolicyServiceClient, number int) {
	for _, device := range devices {
		for _, job := range device.Residents {
			// A round of the simulation is 60 s; 5000 and 6000 stand for what your job counted in it.
			steps := map[bool]float64{false: 6000, true: 5000}[len(device.Residents) > 1]
			window := &pb.Progress{JobId: job.Id, Workload: job.Workload, DeviceType: device.Type, Steps: &steps,
				StartS: 60 * float64(number-1), EndS: 60 * float64(number)}
			for _, other := range device.Residents {
				if other.Id != job.Id {
					window.Company = append(window.Company, other.Workload)
				}
			}
			unsent = append(unsent, &pb.Observation{ObservationId: fmt.Sprintf("%s-%d-%s", run, number, job.Id),
				What: &pb.Observation_Progress{Progress: window}})
		}
	}
	report, err := client.ReportObservations(context.Background(), &pb.ReportObservationsRequest{Observations: unsent})
	if err != nil {
		stopUnlessItMayPass(err)
		fmt.Printf("kept %d windows\n", len(unsent))
		return
	}
	unsent = nil
	fmt.Println("observed:", report.Answers)
}

func main() {
	address := append(os.Args, "127.0.0.1:50051")[1]
	connection, err := grpc.Dial(address, grpc.WithInsecure(), grpc.WithUnaryInterceptor(send))
	if err != nil {
		log.Fatal(err)
	}
	client := pb.NewPolicyServiceClient(connection)
	for number := 1; len(queue) > 0; number++ {
		plan := match(client, number)
		deviceOf := map[string]string{}
		for _, action := range plan.Actions {
			fmt.Println(number, action.JobId, action.Kind, action.DeviceId, action.Reason)
			deviceOf[action.JobId] = action.DeviceId
			if plan.DecisionId != "" { // empty: the server is away
				explain(client, plan.DecisionId, action.JobId)
			}
		}
		start(deviceOf)
		observe(client, number)
		for k := 0; number%2 == 0 && k < len(devices); k++ { // jobs of the simulation end after every second round
			devices[k].Residents = nil
		}
	}
}
