"""Other torch workloads: training of a recommender, a VAE and a graph network, and rollouts of a policy."""

from typing import Any

from interfere.profiling.workloads.workload import Answer, Pause, Step, built_in, built_in_service


@built_in("dlrm-train", "recommendation with embeddings (DLRM-like), 3 ms wait for features before each batch", "torch")
def build_dlrm_train() -> Step:
    """Build the training of a recommender (Naumov et al. 2019) that waits 3 ms for the feature store in each step."""
    import torch
    from torch import nn
    from torch.nn import functional

    tables = [nn.EmbeddingBag(100_000, 32, mode="sum", sparse=True) for _ in range(4)]
    bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 32))
    top = nn.Sequential(nn.Linear(32 + 10, 64), nn.ReLU(), nn.Linear(64, 1))
    parameters = [p for module in (*tables, bottom, top) for p in module.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    dense, click = torch.randn(512, 13), torch.rand(512, 1).round()
    rows, columns = torch.triu_indices(5, 5, 1)
    batches = [torch.randint(100_000, (4, 512, 8)) for _ in range(16)]
    batch_index = 0

    def step(pause: Pause) -> None:
        nonlocal batch_index
        pause(0.003)
        ids, batch_index = batches[batch_index], (batch_index + 1) % len(batches)
        optimizer.zero_grad()
        hidden = bottom(dense)
        vectors = torch.stack([hidden, *(table(i) for table, i in zip(tables, ids, strict=True))], 1)
        dots = torch.bmm(vectors, vectors.transpose(1, 2))[:, rows, columns]
        functional.binary_cross_entropy_with_logits(top(torch.cat([hidden, dots], 1)), click).backward()
        optimizer.step()

    return step


@built_in("vae-train", "variational autoencoder training, 2 ms of logging after each step", "torch")
def build_vae_train() -> Step:
    """Build the training of a variational autoencoder on MNIST shapes, with 2 ms of logging after each step."""
    import torch
    from torch import nn
    from torch.nn import functional

    encoder = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 32))
    decoder = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 784))
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    images = torch.rand(64, 784)

    def step(pause: Pause) -> None:
        optimizer.zero_grad()
        mean, log_var = encoder(images).chunk(2, 1)
        sampled = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        reconstruction_loss = functional.binary_cross_entropy_with_logits(decoder(sampled), images, reduction="sum")
        (reconstruction_loss - 0.5 * (1 + log_var - mean**2 - log_var.exp()).sum()).backward()
        optimizer.step()
        pause(0.002)

    return step


@built_in("gnn-train", "graph network training, gather and scatter along edges: always busy", "torch")
def build_gnn_train() -> Step:
    """Build the training of a graph network: two rounds of messages along random edges, memory-bound."""
    import torch
    from torch import nn

    nodes, edges, width = 8192, 40000, 32
    source, target = torch.randint(nodes, (edges,)), torch.randint(nodes, (edges,))
    first, second = nn.Linear(width, width), nn.Linear(width, 8)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.01)
    features, labels = torch.randn(nodes, width), torch.randint(8, (nodes,))

    def aggregate(hidden: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(hidden).index_add_(0, target, hidden[source])

    def step(pause: Pause) -> None:
        optimizer.zero_grad()
        logits = second(aggregate(first(aggregate(features)).relu()))
        nn.functional.cross_entropy(logits, labels).backward()
        optimizer.step()

    return step


@built_in("rl-rollout", "policy rollout: ten tiny inferences, 0.5 ms of simulator after each", "torch")
def build_rl_rollout() -> Step:
    """Build a rollout of ten actions of a policy; a simulator in another process takes 0.5 ms for each."""
    import torch
    from torch import nn

    policy = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 8)).eval()
    observations = torch.randn(4, 64)

    def step(pause: Pause) -> None:
        for _ in range(10):
            with torch.inference_mode():
                policy(observations).softmax(-1).multinomial(1)
            pause(0.0005)

    return step


@built_in_service(
    "recommender", "512 candidates ranked from embedding tables", "torch", requests_per_s=(700, 1200, 1800)
)
def build_recommender() -> Answer:
    """Build a service that ranks 512 candidates: look-ups in four tables of 12.8 MB, then a small network."""
    import torch
    from torch import nn

    tables = [nn.EmbeddingBag(100_000, 32, mode="sum") for _ in range(4)]
    top = nn.Sequential(nn.Linear(4 * 32, 64), nn.ReLU(), nn.Linear(64, 1))
    ids = torch.randint(100_000, (4, 512, 8))

    def answer() -> Any:
        with torch.inference_mode():
            vectors = [table(indices) for table, indices in zip(tables, ids, strict=True)]
            return top(torch.cat(vectors, 1)).squeeze(1).topk(5).indices

    return answer
