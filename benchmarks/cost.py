"""The cost model against published step times, and how long its tables take; a table and JSON.

    make bench BENCH=cost ARGS='--json'

Every row is predicted twice: with the shipped constants, which were fitted to all rows, and with
constants fitted without the row's paper. `--fit` prints what a fit to all rows gives now, as it
belongs into planner/unicron/planner/cost/data/constants.toml.
"""

import argparse
import json
import time

from unicron.planner.cost import Training, Transformer, accelerator, layout_table, pareto
from unicron.planner.cost import published as data
from unicron.planner.cost.constants import shipped_constants
from unicron.planner.cost.fit import BOUNDS, HeldOut, fitted, held_out

MODELS = {
    "GPT 6.7B": Transformer(layers=32, hidden=4096, heads=32, sequence=2048, vocabulary=50257),
    "GPT-3 175B": Transformer(layers=96, hidden=12288, heads=96, sequence=2048, vocabulary=50257),
    "Llama-2 70B": Transformer(
        layers=80,
        hidden=8192,
        heads=64,
        query_groups=8,
        ffn_hidden=28672,
        sequence=4096,
        vocabulary=32000,
        swiglu=True,
        tied_embeddings=False,
        learned_positions=False,
        biases=False,
        rms_norm=True,
    ),
}
SIZES = (512, 16_384)


def row_data(row: data.Row, outside: dict[str, HeldOut]) -> dict[str, object]:
    """One row as JSON: seconds, and errors as shares of the measured time."""
    return {
        "paper": row.paper,
        "table": row.table,
        "name": row.name,
        "devices": row.devices,
        "layout": f"tp{row.tp} pp{row.pp} dp{row.dp}",
        "virtual": list(row.virtual),
        "micro_batch": row.micro_batch,
        "recompute": row.recompute,
        "measured_s": row.measured,
        "predicted_s": data.predicted(row, shipped_constants()),
        "error": data.error(row, shipped_constants()),
        "held_out_error": data.error(row, outside[row.paper].constants),
        "confirmed": row.confirmed,
    }


def table_data(name: str, devices: int, exact: bool) -> dict[str, object]:
    """How long one model's table takes, in CPU seconds, and what is in it."""
    training = Training(global_batch=1024, exact=exact)
    begun = time.process_time()
    table = layout_table(MODELS[name], training, accelerator("h100"), devices)
    return {
        "model": name,
        "devices": devices,
        "exact": exact,
        "cpu_s": time.process_time() - begun,
        "sizes": len(table),
        "pareto": len(pareto(table)),
        "smallest": table[0].devices if table else None,
    }


def collected(*, tables: bool) -> dict[str, list[dict[str, object]]]:
    """Everything as JSON; `tables` takes some seconds."""
    outside = {paper: held_out(paper) for paper in data.papers()}
    return {
        "rows": [row_data(row, outside) for row in data.rows()],
        "held_out": [
            {
                "paper": paper,
                "arxiv": data.papers()[paper].arxiv,
                "rows": len(found.errors),
                "mean_error": found.mean,
                "largest_error": found.largest,
            }
            for paper, found in outside.items()
        ],
        "tables": [
            table_data(name, devices, exact)
            for name in MODELS
            for devices in SIZES
            for exact in (True, False)
            if tables
        ],
    }


def show(found: dict[str, list[dict[str, object]]]) -> None:
    print(
        f"{'paper':<12}{'t.':>3} {'model':>7} {'devices':>7}  {'layout':<17}{'recompute':<10}"
        f"{'measured':>10} {'predicted':>10} {'error':>7} {'held out':>9}"
    )
    for row in found["rows"]:
        print(
            f"{row['paper']:<12}{row['table']:>3} {row['name']:>7} {row['devices']:>7}  "
            f"{row['layout']:<17}{row['recompute']:<10}{row['measured_s']:>8.2f} s "
            f"{row['predicted_s']:>8.2f} s {row['error']:>+7.1%} {row['held_out_error']:>+9.1%}"
            f"{'' if row['confirmed'] else '  unconfirmed'}"
        )
    doubtful = sum(not row["confirmed"] for row in found["rows"])
    if doubtful:
        print(f"unconfirmed, from memory and not found in a public source: {doubtful} of the rows")
    print()
    for paper in found["held_out"]:
        print(
            f"fit without {paper['paper']} (arXiv {paper['arxiv']}), held out: mean error "
            f"{paper['mean_error']:.1%}, largest {paper['largest_error']:.1%} "
            f"of {paper['rows']} rows"
        )
    if found["tables"]:
        print()
        print(
            f"{'tables, H100, batch 1024':<25}{'devices':>8} {'sum':>6} {'sizes':>6} {'pareto':>7}"
            f" {'CPU':>7}"
        )
    for table in found["tables"]:
        kind = "exact" if table["exact"] else "stock"
        print(
            f"{table['model']:<25}{table['devices']:>8} {kind:>6} {table['sizes']:>6} "
            f"{table['pareto']:>7} {table['cpu_s']:>5.2f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="JSON instead of the tables")
    parser.add_argument(
        "--fit", action="store_true", help="fit to all rows and print the constants"
    )
    parser.add_argument("--rows", action="store_true", help="only the rows, no tables of layouts")
    chosen = parser.parse_args()
    if chosen.fit:
        known = fitted(data.rows())
        for name in BOUNDS:
            print(f"{name} = {getattr(known, name):.4g}")
    elif chosen.json:
        print(json.dumps(collected(tables=not chosen.rows), indent=2))
    else:
        show(collected(tables=not chosen.rows))


if __name__ == "__main__":
    main()
