"""`PolicyClient`: ask an interfere server in records, not protobuf. Works in a bare install (numpy, grpcio, protobuf).

    with PolicyClient("127.0.0.1:50051") as client:
        answer = client.predict(["resnet-train", "lstm-infer"])
        plan = client.match(Snapshot(pending=(Job(id="j1", workload="resnet-train"),), devices=(...,)))

Errors are those of `interfere.errors`, whichever side raised them.
"""

from interfere.client.fallback import AloneFallback, Fallback
from interfere.client.policy_client import PolicyClient

__all__ = ["AloneFallback", "Fallback", "PolicyClient"]
