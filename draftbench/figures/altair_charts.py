"""The screen renderer: a figure as Vega-Lite through Altair, with legend selection and tooltips."""

import warnings
from typing import Any

import altair as alt

from draftbench.figures import numbers
from draftbench.figures.declaration import Figure, Panel, Point, Series
from draftbench.figures.scales import tick_lines, x_values, y_range

HIDDEN_PARAMETER = "hidden"
SELECTION_PARAMETERS = ("workload", "concurrency", "tensor_parallelism")
_VISIBLE = " && ".join(
    [
        f"indexof({HIDDEN_PARAMETER}, datum.key) < 0",
        *(
            f"(!isValid(datum.{name}) || only_{name} === '' || toString(datum.{name}) === only_{name})"
            for name in SELECTION_PARAMETERS
        ),
    ]
)
_FONT = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"


def chart_spec(figure: Figure, panel_width: int = 300, panel_height: int = 240) -> dict[str, Any]:
    """Vega-Lite of the whole figure with its own legend: a click on an entry brings that series forward."""
    single = len(figure.panels) == 1
    width = max(panel_width * 2, 560) if single else panel_width
    focus = alt.selection_point(fields=["series"], bind="legend", name="focus")
    opacity = alt.condition(focus, alt.value(1.0), alt.value(0.12))
    panels = [
        _panel_chart(figure, panel, _dataset(place), opacity).properties(
            width=width, height=panel_height, title=panel.title
        )
        for place, panel in enumerate(figure.panels)
    ]
    whole = panels[0] if single else _side_by_side(panels)
    spec = (
        _shared_selection(whole, focus)
        .properties(title=alt.TitleParams(figure.title, anchor="start", fontSize=14), background="white")
        .configure(font="Helvetica, Arial, sans-serif")
        .configure_view(stroke=None)
        .configure_legend(orient="top", title=None, symbolStrokeWidth=1.5, columns=5)
    )
    return _with_data(spec, {_dataset(place): points_of(figure, panel) for place, panel in enumerate(figure.panels)})


def panel_specs(figure: Figure) -> list[dict[str, Any]]:
    """Vega-Lite of each panel for the HTML report: fluid width, no legend, filtered by the page's controls.

    Panels of one shape share what Altair builds, which takes most of a large report's time; only the rows differ.
    """
    shapes: dict[tuple[object, ...], dict[str, Any]] = {}
    specs = []
    for panel in figure.panels:
        whole, inner = (any(ends) for ends in _interval_flags(panel))
        shape = (figure.categories(panel), whole, inner)
        if shape not in shapes:
            shapes[shape] = _panel_template(figure, panel)
        specs.append({**shapes[shape], "datasets": {_dataset(0): points_of(figure, panel)}})
    return specs


def _interval_flags(panel: Panel) -> tuple[list[bool], list[bool]]:
    points = panel.points
    return [point.has_interval for point in points], [point.inner_low is not None for point in points]


def _panel_template(figure: Figure, panel: Panel) -> dict[str, Any]:
    parameters = [alt.param(name=HIDDEN_PARAMETER, value=[])]
    parameters += [alt.param(name=f"only_{name}", value="") for name in SELECTION_PARAMETERS]
    layered = _panel_chart(figure, panel, _dataset(0), alt.value(1.0), legend=False, filtered=True)
    spec: dict[str, Any] = (
        layered.add_params(*parameters)
        .properties(width="container", height=230)
        .configure(font=_FONT, background="transparent")
        .configure_view(stroke=None)
        .to_dict()
    )
    return spec


def _side_by_side(panels: list[Any]) -> Any:
    joined: Any = alt.concat(*panels, columns=min(len(panels), 3))
    return joined.resolve_scale(color="shared", shape="shared")


def _shared_selection(whole: Any, selection: Any) -> Any:
    with warnings.catch_warnings():
        # Every panel shares the one selection on purpose; Altair merges it and says so.
        warnings.filterwarnings("ignore", message="Automatically deduplicated selection parameter")
        return whole.add_params(selection)


def _dataset(place: int) -> str:
    return f"panel{place}"


def _with_data(chart: Any, datasets: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The specification with its rows, which go in last: Altair copies everything it holds at each step."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Automatically deduplicated selection parameter")
        spec: dict[str, Any] = chart.to_dict()
    spec["datasets"] = {**spec.get("datasets", {}), **datasets}
    return spec


def points_of(figure: Figure, panel: Panel) -> list[dict[str, Any]]:
    """The panel's rows as both charts embed them."""
    return [_row(figure, series, point) for series in panel.series for point in series.points]


def _row(figure: Figure, series: Series, point: Point) -> dict[str, Any]:
    as_ratio = figure.y.unit == "×"
    return {
        "key": series.key,
        "series": series.style.label,
        "x": point.x,
        "y": point.y,
        "low": point.low,
        "high": point.high,
        "inner_low": point.inner_low,
        "inner_high": point.inner_high,
        "value": numbers.ratio(point.y) if as_ratio else numbers.number(point.y),
        "interval": numbers.interval(point.low, point.high, as_ratio=as_ratio) or "none",
        "inner": numbers.interval(point.inner_low, point.inner_high, as_ratio=as_ratio) or "none",
        "n": point.note or "not recorded",
        "workload": point.workload,
        "concurrency": point.concurrency,
        "tensor_parallelism": point.tensor_parallelism,
    }


def _panel_chart(
    figure: Figure, panel: Panel, dataset: str, opacity: Any, *, legend: bool = True, filtered: bool = False
) -> Any:
    base: Any = alt.Chart()
    if filtered:
        base = base.transform_filter(_VISIBLE)
    shared = {**_looks(figure, legend), "x": _x(figure, panel), "opacity": opacity}
    if figure.x.categories:
        shared["xOffset"] = alt.XOffset("series:N", sort=_labels(figure), title=None)
    layers = [_reference(figure)] if figure.reference is not None else []
    layers += _mark_layers(figure, panel, base, shared)
    layered: Any = alt.layer(*layers, data=alt.NamedData(name=dataset))
    return layered


def _mark_layers(figure: Figure, panel: Panel, base: Any, shared: dict[str, Any]) -> list[Any]:
    y, tooltip = _y(figure), _tooltip(figure)
    plain = {name: shared[name] for name in shared if name != "shape"}
    if figure.kind == "bars":
        return [base.mark_bar().encode(y=y, tooltip=tooltip, **plain)]
    layers = []
    if figure.kind == "lines":
        dash = alt.StrokeDash(
            "series:N",
            legend=None,
            scale=alt.Scale(
                domain=_labels(figure), range=[list(style.dash) or [1, 0] for style in figure.styles.values()]
            ),
        )
        layers.append(base.mark_line(strokeWidth=1.8).encode(y=y, strokeDash=dash, **plain))
    if any(point.has_interval for point in panel.points):
        bars = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1.4, clip=True)
        layers.append(bars.encode(y=_y(figure, "low:Q"), y2="high:Q", **plain))
    if any(point.inner_low is not None for point in panel.points):
        inner = base.transform_filter("isValid(datum.inner_low)").mark_rule(strokeWidth=4, clip=True)
        layers.append(inner.encode(y=_y(figure, "inner_low:Q"), y2="inner_high:Q", **plain))
    points = base.mark_point(filled=True, size=75, strokeWidth=1.5)
    layers.append(points.encode(y=y, tooltip=tooltip, **shared))
    return layers


def _labels(figure: Figure) -> list[str]:
    return [style.label for style in figure.styles.values()]


def _looks(figure: Figure, legend: bool) -> dict[str, Any]:
    styles, shown = list(figure.styles.values()), alt.Undefined if legend else None
    colours = alt.Scale(domain=_labels(figure), range=[style.colour for style in styles])
    shapes = alt.Scale(domain=_labels(figure), range=[style.marker for style in styles])
    return {
        "color": alt.Color("series:N", scale=colours, title=None, legend=shown),
        "shape": alt.Shape("series:N", scale=shapes, title=None, legend=shown),
    }


def _x(figure: Figure, panel: Panel) -> Any:
    if figure.x.categories:
        held = figure.categories(panel)
        lines = [tick_lines(name) for name in held]
        crowded = sum(max(len(line) for line in label) for label in lines) > (80 if len(figure.panels) == 1 else 34)
        split = "', '" if any(", " in name for name in held) else "' '"
        text = "datum.label" if crowded or held[0].startswith("c = ") else f"split(datum.label, {split})"
        axis = alt.Axis(labelAngle=-35 if crowded else 0, labelLimit=160, title=figure.x.title, labelExpr=text)
        return alt.X("x:N", sort=list(held), axis=axis)
    values = x_values(figure)
    scale = (
        alt.Scale(type="log", base=2, nice=False, domain=[values[0] / 1.25, values[-1] * 1.25])
        if figure.x.scale == "log2"
        else alt.Scale(zero=False, nice=False, padding=14)
    )
    axis = alt.Axis(
        values=values if len(values) <= 8 else alt.Undefined, format="d" if figure.x.whole else "", grid=False
    )
    return alt.X("x:Q", title=figure.x.label, scale=scale, axis=axis)


def _y(figure: Figure, field: str = "y:Q") -> alt.Y:
    scale = alt.Scale(domain=list(y_range(figure)), nice=False, type="log" if figure.y.scale == "log10" else "linear")
    return alt.Y(field, title=figure.y.label, scale=scale, axis=alt.Axis(tickCount=6))


def _reference(figure: Figure) -> Any:
    data: Any = alt.Data(values=[{"reference": figure.reference}])  # type: ignore[no-untyped-call]
    rule = alt.Chart(data).mark_rule(strokeDash=[5, 4], color="#888888")
    return rule.encode(y=_y(figure, "reference:Q"))


def _tooltip(figure: Figure) -> list[alt.Tooltip]:
    x_type = "N" if figure.x.categories else "Q"
    return [
        alt.Tooltip("series:N", title="Arm" if figure.by_arm else "Series"),
        alt.Tooltip(f"x:{x_type}", title=figure.x.label),
        alt.Tooltip("value:N", title=figure.y.label),
        alt.Tooltip("interval:N", title="Interval"),
        alt.Tooltip("inner:N", title="For these prompts"),
        alt.Tooltip("n:N", title="n"),
    ]
