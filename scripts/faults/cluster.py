"""Campaigns of faults against the store on a simulated cluster: no wrong or partial answer goes unmarked.

    python -m scripts.faults.cluster --campaigns 200 --steps 60

Each campaign loads snippets into a cluster of three nodes with two or three replicas. At each step something happens to
a node, snippets are written, and the index is read through any node: fetch, search, count and list of ids. An answer
that differs from what was acknowledged ends the run with an error. The nodes are simulated (`tests/replica_sets.py`);
the store and the client are the program's own.
"""

from __future__ import annotations

import argparse
import warnings

from tests.cluster_campaign import Campaign
from tests.simulated_cluster import SimulatedCluster


def main() -> None:
    """Run the campaigns and print what became of their reads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--campaigns", type=int, default=100)
    parser.add_argument("--steps", type=int, default=40)
    asked = parser.parse_args()
    warnings.filterwarnings("ignore", message="Local mode performs exact")
    answers = errors = 0
    for seed in range(asked.campaigns):
        cluster = SimulatedCluster(seed=seed)
        campaign = Campaign(cluster, seed)
        for _ in range(asked.steps):
            campaign.step()
        cluster.close()
        answers, errors = answers + campaign.answers, errors + campaign.errors
    print(  # noqa: T201
        f"{asked.campaigns} campaigns, {answers + errors} steps: {answers} answered whole, {errors} errors, "
        "0 wrong or partial answers"
    )


if __name__ == "__main__":
    main()
