"""NVIDIA's workstation and consumer GPUs, and the smaller data centre cards of the same chips.

`source` names NVIDIA's document of each figure. The documents themselves were not at hand. In November 2026 the figures
were compared with pages that quote them, and none differed:

- rtx3080, apart from 16 bit: itcreations.com/nvidia-gpu/nvidia-geforce-rtx-3080-gpu, cputronic.com
- rtx3090: holynerdvana.blogspot.com/2022/10/nvidia-geforce-rtx-3090-specifications.html
- rtx4080: holynerdvana.com/2022/10/nvidia-geforce-rtx-4080-specifications.html
- rtx4090, apart from 16 bit: thefpsreview.com/gpu-family/nvidia-geforce-rtx-4090-gpu-family-specifications
- rtx5090: pocketmags.com/linux-format-magazine/may-2025/articles/nvidia-geforce-rtx-5090
- rtxa6000, a30, apart from tensor cores: sysrqmts.com/gpus
- a40: ecer.com (NVIDIA's data sheet as text); rtx6000-ada, apart from tensor cores: grafikkarten.com, cputronic.com

Consumer pages quote 16 bit with sparsity and 16-bit accumulate: a quarter of it is ours, dense with 32-bit accumulate.
The figures of rtx2080ti and rtx3070, and those left out above, stand as recollected. Nothing here was measured.
"""

from interfere.devices.device_type import gpu

WORKSTATION_GPUS = (
    gpu(
        name="rtx2080ti",
        fp32_tflops=13.4,
        half_tflops=53.8,
        bandwidth_gb_s=616,
        memory_gib=11,
        multiprocessors=68,
        l2_mib=5.5,
        aliases=("nvidia geforce rtx 2080 ti", "geforce rtx 2080 ti"),
        source="NVIDIA Turing architecture whitepaper, table 1: reference clocks, 16-bit with 32-bit accumulate",
    ),
    gpu(
        name="rtx3070",
        fp32_tflops=20.3,
        half_tflops=40.6,
        tf32_tflops=20.3,
        bandwidth_gb_s=448,
        memory_gib=8,
        multiprocessors=46,
        l2_mib=4,
        aliases=("nvidia geforce rtx 3070", "geforce rtx 3070"),
        source="NVIDIA Ampere GA102 whitepaper, appendix A: 16-bit with 32-bit accumulate",
    ),
    gpu(
        name="rtx3080",
        fp32_tflops=29.8,
        half_tflops=59.5,
        tf32_tflops=29.8,
        bandwidth_gb_s=760,
        memory_gib=10,
        multiprocessors=68,
        l2_mib=5,
        aliases=("nvidia geforce rtx 3080", "geforce rtx 3080"),
        source="NVIDIA Ampere GA102 whitepaper, table 9: 16-bit with 32-bit accumulate",
    ),
    gpu(
        name="rtx4080",
        fp32_tflops=48.7,
        half_tflops=97.5,
        tf32_tflops=48.7,
        bandwidth_gb_s=716.8,
        memory_gib=16,
        multiprocessors=76,
        l2_mib=64,
        aliases=("nvidia geforce rtx 4080", "geforce rtx 4080"),
        source="NVIDIA Ada whitepaper, appendix A: 16-bit with 32-bit accumulate",
    ),
    gpu(
        name="rtx4090",
        fp32_tflops=82.6,
        half_tflops=165.2,
        tf32_tflops=82.6,
        bandwidth_gb_s=1008,
        memory_gib=24,
        multiprocessors=128,
        l2_mib=72,
        aliases=("nvidia geforce rtx 4090", "geforce rtx 4090"),
        source="NVIDIA Ada whitepaper, appendix A: 16-bit with 32-bit accumulate",
    ),
    gpu(
        name="rtx5090",
        fp32_tflops=104.8,
        half_tflops=209.5,
        tf32_tflops=104.8,
        bandwidth_gb_s=1792,
        memory_gib=32,
        multiprocessors=170,
        l2_mib=96,
        aliases=("nvidia geforce rtx 5090", "geforce rtx 5090"),
        source="NVIDIA RTX Blackwell whitepaper, appendix A: 16-bit with 32-bit accumulate",
    ),
    gpu(
        name="a30",
        fp32_tflops=10.3,
        half_tflops=165,
        tf32_tflops=82,
        bandwidth_gb_s=933,
        memory_gib=24,
        multiprocessors=56,
        l2_mib=24,
        has_mig=True,
        aliases=("nvidia a30",),
        source="NVIDIA A30 datasheet",
    ),
    gpu(
        name="a40",
        fp32_tflops=37.4,
        half_tflops=149.7,
        tf32_tflops=74.8,
        bandwidth_gb_s=696,
        memory_gib=48,
        multiprocessors=84,
        l2_mib=6,
        aliases=("nvidia a40",),
        source="NVIDIA A40 datasheet",
    ),
    gpu(
        name="rtxa6000",
        fp32_tflops=38.7,
        half_tflops=154.8,
        tf32_tflops=77.4,
        bandwidth_gb_s=768,
        memory_gib=48,
        multiprocessors=84,
        l2_mib=6,
        aliases=("nvidia rtx a6000",),
        source="NVIDIA RTX A6000 datasheet and GA102 whitepaper (dense: half of the sparse figure)",
    ),
    gpu(
        name="rtx6000-ada",
        fp32_tflops=91.1,
        half_tflops=364.2,
        tf32_tflops=182.1,
        bandwidth_gb_s=960,
        memory_gib=48,
        multiprocessors=142,
        l2_mib=96,
        aliases=("nvidia rtx 6000 ada generation",),
        source="NVIDIA Ada professional whitepaper, appendix A (dense)",
    ),
)
