"""CPU seconds of replays of 23,859 synthetic jobs in one pool of 1,080 devices at a load of 0.95, one policy a line."""

from tests.bench.test_replay_scale import cpu_s

JOBS, DEVICES, LOAD = 23_859, 1_080, 0.95
POLICIES = ("fifo-easy", "sjf-easy", "qssf-easy", "tiresias-first-fit", "tiresias-first-fit-greedy", "srtf-first-fit")

if __name__ == "__main__":
    for policy in POLICIES:
        print(f"{policy}: {cpu_s(policy, JOBS, DEVICES, load=LOAD):.1f} s", flush=True)
