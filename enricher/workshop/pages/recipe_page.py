"""The part of the gate's page about int8: the texts that it was calibrated on, and what is not quantised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.workshop.pages.frame import facts, section, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enricher.worker.inference.graph.recipe import QuantisedInput, Recipe


def recipe_sections(recipe: Recipe) -> Iterator[str]:
    """The sections about products in higher precision, the calibration, and the quantised values."""
    products = len(recipe.products)
    yield section(
        "What stays in higher precision",
        f"{products} of {products + len(recipe.kept)} products of the encoder with weights are int8. The classifier, "
        f"attention and all other operators are bf16, or fp32 on processors without bf16 units.",
        table(["product", "why"], [[each.name, each.reason] for each in recipe.kept]) if recipe.kept else "",
    )
    missed = (
        f" Warning: {recipe.measured.missed}, so precision auto does not take this int8."
        if recipe.measured.missed
        else ""
    )
    yield section(
        "Calibration",
        f"Without labels. Labels are compared with those of fp32, on articles from which no range was taken.{missed}",
        facts(_calibration(recipe)),
    )
    columns = ["value", "products that take it", "range", "clipped to", "gains, exponent"]
    yield section(
        "Quantised values",
        "The gate's figures above judge them all together.",
        table(columns, [_row(each) for each in recipe.inputs]),
    )


def _calibration(recipe: Recipe) -> list[tuple[str, str]]:
    texts, measured = recipe.texts, recipe.measured
    return [
        ("texts", f"{texts.name}: {texts.number:,} texts, sha256 {texts.digest}"),
        ("windows", f"{texts.windows:,} windows, {texts.tokens:,} tokens; seed {recipe.seed}"),
        (
            "held out",
            f"{measured.windows:,} windows, {measured.tokens:,} tokens: {100 * measured.equal_labels:.3f} % of labels equal",
        ),
        ("wanted", f"{100 * measured.target:.1f} % of labels equal"),
        (
            "divergence",
            f"{measured.divergence:.3g} nats, mean Kullback-Leibler divergence of the labels' probabilities",
        ),
    ]


def _row(each: QuantisedInput) -> list[str]:
    gains = f"{each.exponent:g}" if each.gains else "none"
    return [each.value, ", ".join(each.products), f"{each.low:.3g} to {each.high:.3g}", f"{each.clip:.3f}", gains]
