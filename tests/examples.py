"""The shortest presets that are right, which tests change."""

EXAMPLE = {
    "name": "x",
    "vendor": "v",
    "architecture": "a",
    "memory": "80 GB",
    "bandwidth": "2 TB/s",
    "peak": {"bf16": "300 TFLOP/s"},
}
NODE = {"name": "n", "gpu": "x", "gpus_per_node": 8, "domain": 8, "fabric": {"kind": "nvswitch", "rate": "450 GB/s"}}
