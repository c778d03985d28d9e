"""Upload and download per client and step beside the paper's formulation, from the exact ledger."""

from __future__ import annotations

import argparse

from lpgcn.config import Config
from lpgcn.data import load
from lpgcn.runtime.planning import planner_for
from lpgcn.runtime.engines.simulated import Simulated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="*", default=["ml-100k", "gowalla"])
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--planner", default="cover")
    options = parser.parse_args()
    print(f"d=64, L={options.layers}, batch 2048, suite sealed; KB of 1,000 bytes, mean client")
    print(f"{'data':9} {'model':10} {'α':>5} {'k':>6} {'up':>8} {'paper':>8} {'ratio':>6}"
          f" {'down':>8} {'paper':>8} {'ratio':>6}")  # fmt: skip
    for name in options.datasets:
        split = load(name)
        for model in ("lightgcn", "lightgcn+"):
            for alpha in ("0", "10", "1.0x"):
                config = Config(
                    model=model,
                    layers=options.layers,
                    virtual_items=alpha,
                    planner=options.planner,
                )
                engine = Simulated(split, config, planner_for(split, config))
                for step in range(options.steps):
                    engine.step(0, step, 1e-3)
                t = engine.traffic()
                print(
                    f"{name:9} {model:10} {alpha:>5} {t.convolution_clients:>6} "
                    f"{t.up_per_step / 1e3:8.2f} {t.paper_up_per_step / 1e3:8.2f} "
                    f"{t.up_per_step / t.paper_up_per_step:6.3f} "
                    f"{t.down_per_step / 1e3:8.2f} {t.paper_down_per_step / 1e3:8.2f} "
                    f"{t.down_per_step / t.paper_down_per_step:6.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
