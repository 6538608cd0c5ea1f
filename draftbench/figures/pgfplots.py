"""The print renderer: a figure as a pgfplots picture, drawn by TeX from the same points."""

from draftbench.figures.declaration import Figure, Panel, Point, Series, Style
from draftbench.figures.latex_text import escape
from draftbench.figures.scales import dodge, drawable_range, tick_lines, ticks, x_values, y_range

TEXT_WIDTH_CM = 16.0
_HEIGHTS_CM = {1: 5.6, 2: 4.8, 3: 4.2, 4: 3.4}
_TALLEST_CM = 17.5
_GAP_CM = 0.45
_Y_LABEL_CM = 1.5
_CHARACTER_CM = 0.145
_MARKS = {
    "circle": "*",
    "square": "square*",
    "triangle-up": "triangle*",
    "triangle-down": "triangle*",
    "triangle-right": "triangle*",
    "triangle-left": "triangle*",
    "diamond": "diamond*",
    "cross": "x",
}
_ROTATIONS = {"triangle-down": 180, "triangle-right": 270, "triangle-left": 90}
_MARK_SIZES = {"square": 1.8, "circle": 2.0, "cross": 2.8, "diamond": 2.6}

PREAMBLE = r"""
\usepackage{tikz}
\usepackage{pgfplots}
\usepgfplotslibrary{groupplots}
\pgfplotsset{compat=1.16}
\pgfplotsset{draftbench/.style={
  scale only axis,
  axis x line*=bottom, axis y line*=left, axis line style={black!45},
  tick style={black!45}, tick align=outside, major tick length=2.5pt,
  ymajorgrids, grid style={black!10},
  label style={font=\footnotesize\sffamily}, tick label style={font=\scriptsize\sffamily},
  title style={font=\footnotesize\sffamily\bfseries, yshift=-4pt},
  scaled ticks=false,
  /pgf/number format/assume math mode=true, /pgf/number format/fixed, /pgf/number format/precision=4,
  extra y tick style={grid=major, major grid style={black!65, densely dashed}},
  error bars/error bar style={line width=0.8pt, solid},
  error bars/error mark options={rotate=90, mark size=1.6pt, line width=0.8pt, solid},
}}
"""


def document(figure: Figure) -> str:
    """A LaTeX document of the figure alone, cropped to its size."""
    return (
        "\\documentclass[border=4pt]{standalone}\n\\usepackage[T1]{fontenc}\n\\usepackage[utf8]{inputenc}\n"
        "\\usepackage{textcomp}\n\\usepackage[scaled=0.92]{helvet}\n"
        f"{PREAMBLE}\\begin{{document}}\n\\begin{{minipage}}{{{TEXT_WIDTH_CM}cm}}\\centering\n"
        f"{picture(figure)}\n\\end{{minipage}}\n"
        "\\end{document}\n"
    )


def picture(figure: Figure) -> str:
    """The figure as a tikzpicture with its legend above, no wider than the report's text."""
    columns = column_count(figure)
    parts = [_panel(figure, panel, place, columns) for place, panel in enumerate(figure.panels)]
    return "\n".join(
        [
            _legend(figure),
            "\\begin{tikzpicture}",
            f"\\begin{{groupplot}}[draftbench, {', '.join(_group_options(figure, columns))}]",
            *parts,
            "\\end{groupplot}",
            "\\end{tikzpicture}",
        ]
    )


def column_count(figure: Figure) -> int:
    """Panels side by side: as many as stay readable."""
    count = len(figure.panels)
    widest = max(len(figure.categories(panel)) for panel in figure.panels)
    if figure.x.categories and widest > 4:
        return min(count, 2)
    return count if count <= 4 else 4 if count % 4 == 0 or count > 6 else 3


def _panel_width(figure: Figure, columns: int) -> float:
    return (TEXT_WIDTH_CM - _Y_LABEL_CM - _GAP_CM * (columns - 1)) / columns


def _panel_height(columns: int, rows: int, row_gap: float) -> float:
    """Usual height, less where many rows would not fit a page with heading and caption."""
    return min(_HEIGHTS_CM[columns], (_TALLEST_CM - row_gap * (rows - 1)) / rows)


def _group_options(figure: Figure, columns: int) -> list[str]:
    low, high = y_range(figure)
    rows = -(-len(figure.panels) // columns)
    rotated = _labels_rotate(figure, columns)
    row_gap = (2.1 if rotated else 1.7 if figure.x.categories else 1.35) if rows > 1 else 0
    options = [
        f"group style={{group size={columns} by {rows}, horizontal sep={_GAP_CM}cm, vertical sep={row_gap}cm, "
        "ylabels at=edge left, yticklabels at=edge left}",
        f"width={_panel_width(figure, columns):.2f}cm",
        f"height={_panel_height(columns, rows, row_gap):.2f}cm",
        f"ymin={low:.6g}, ymax={high:.6g}",
        f"ylabel={{{escape(figure.y.label)}}}",
    ]
    if figure.y.scale == "log10":
        options.append("ymode=log, log ticks with fixed point")
    if figure.reference is not None:
        options.append(f"extra y ticks={{{figure.reference:g}}}, extra y tick labels={{}}")
    return options


def _panel(figure: Figure, panel: Panel, place: int, columns: int) -> str:
    options = _x_options(figure, panel, columns)
    options.append(f"title={{{escape(panel.title)}}}")
    last_row = place >= len(figure.panels) - columns
    if last_row:
        options.append(f"xlabel={{{escape(figure.x.label)}}}")
    lines = [f"\\nextgroupplot[{', '.join(options)}]"]
    lines += [_plot(figure, panel, series) for series in panel.series]
    return "\n".join(lines)


def _legend(figure: Figure) -> str:
    """Entries in a row above the panels, broken between entries; drawn in place so that one run of TeX is enough."""
    entries = r"\hspace{1em} ".join(_legend_entry(figure, style) for style in figure.styles.values())
    return rf"{{\footnotesize\sffamily {entries}\par}}\vspace{{5pt}}"


def _legend_entry(figure: Figure, style: Style) -> str:
    if figure.kind == "bars":
        drawing = rf"\tikz[baseline=-0.6ex]\fill[{_colour(style, 'fill')}] (0,-0.1) rectangle (0.4,0.1);"
    else:
        places = "(0,0) (0.35,0) (0.7,0)" if figure.kind == "lines" else "(0,0)"
        look = _look(figure, style, True)
        drawing = rf"\tikz[baseline=-0.6ex]\draw[{look}, mark repeat=2, mark phase=2] plot coordinates {{{places}}};"
        drawing = drawing.replace(", mark repeat=2, mark phase=2", "") if figure.kind != "lines" else drawing
    return rf"\mbox{{{drawing}\,{escape(style.label)}}}"


def _x_options(figure: Figure, panel: Panel, columns: int) -> list[str]:
    if figure.x.categories:
        held = figure.categories(panel)
        rotate = _labels_rotate(figure, columns)
        lines = [[name] if rotate else tick_lines(name) for name in held]
        names = ", ".join("{" + r"\\".join(escape(line) for line in label) + "}" for label in lines)
        options = [
            f"xmin=-0.5, xmax={len(held) - 0.5}",
            f"xtick={{{', '.join(str(place) for place in range(len(held)))}}}",
            f"xticklabels={{{names}}}",
        ]
        turned = "rotate=32, anchor=north east, inner sep=1pt" if rotate else "align=center"
        return [*options, f"x tick label style={{{turned}}}"]
    values = x_values(figure)
    shown = ticks(values, {1: 12, 2: 8, 3: 6, 4: 5}[columns])
    text = ", ".join(f"{value:g}" for value in shown)
    if figure.x.scale == "log2":
        ends = f"xmin={values[0] / 1.25:g}, xmax={values[-1] * 1.25:g}"
        return [f"xmode=log, log basis x=2, {ends}", f"xtick={{{text}}}", f"xticklabels={{{text}}}"]
    padding = (values[-1] - values[0]) * 0.06 or 1.0
    return [f"xmin={values[0] - padding:g}, xmax={values[-1] + padding:g}", f"xtick={{{text}}}"]


def _labels_rotate(figure: Figure, columns: int) -> bool:
    width = _panel_width(figure, columns)
    return any(
        max(len(line) for line in tick_lines(name)) * _CHARACTER_CM > width / max(1, len(figure.categories(panel)))
        for panel in figure.panels
        for name in figure.categories(panel)
    )


def _plot(figure: Figure, panel: Panel, series: Series) -> str:
    rows = "\n".join(
        _coordinate(figure, _position(figure, panel, series, point), point.y, point.low, point.high)
        for point in series.points
    )
    if figure.kind == "bars":
        width = 0.66 / max(1, len(panel.series)) * 0.9
        options = f"ybar, bar shift=0pt, bar width={width:.3f}, {_colour(series.style, 'fill')}, draw=none, forget plot"
    else:
        options = _look(figure, series.style, series.joined) + ", forget plot"
        options += ", error bars/.cd, y dir=both, y explicit"
    drawn = f"% series {series.key}\n\\addplot[{options}] coordinates {{\n{rows}\n}};"
    return _inner_bars(figure, panel, series) + drawn


def _inner_bars(figure: Figure, panel: Panel, series: Series) -> str:
    held = [point for point in series.points if point.inner_low is not None and point.inner_high is not None]
    if not held:
        return ""
    rows = "\n".join(
        _coordinate(figure, _position(figure, panel, series, point), point.y, point.inner_low, point.inner_high)
        for point in held
    )
    bars = "error bars/.cd, y dir=both, y explicit, error bar style={line width=2.2pt}, error mark=none"
    return (
        f"% inner {series.key}\n\\addplot[{_colour(series.style)}, only marks, mark=none, forget plot, {bars}] "
        f"coordinates {{\n{rows}\n}};\n"
    )


def _position(figure: Figure, panel: Panel, series: Series, point: Point) -> float:
    if not figure.x.categories:
        return float(point.x)
    keys = [one.key for one in panel.series]
    return figure.categories(panel).index(str(point.x)) + dodge(keys.index(series.key), len(keys))


def _coordinate(figure: Figure, x: float, y: float, low: float | None, high: float | None) -> str:
    """A point in pgfplots' own notation, which it reads much faster than tables."""
    if low is None or high is None:
        return f"({x:.4f},{y:.6g})"
    least, most = drawable_range(figure)
    low, high = max(low, least), min(high, most)
    return f"({x:.4f},{y:.6g}) += (0,{high - y:.6g}) -= (0,{y - low:.6g})"


def _colour(style: Style, key: str = "color") -> str:
    red, green, blue = (int(style.colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"{key}={{rgb,255:red,{red};green,{green};blue,{blue}}}"


def _look(figure: Figure, style: Style, joined: bool) -> str:
    fill = _colour(style, "fill") if style.filled else "fill=white"
    rotation = _ROTATIONS.get(style.marker)
    turned = f", rotate={rotation}" if rotation else ""
    size = _MARK_SIZES.get(style.marker, 2.4)
    draws_line = figure.kind == "lines" and joined
    dash = " ".join(f"{'on' if place % 2 == 0 else 'off'} {length}pt" for place, length in enumerate(style.dash))
    line = (f"dash pattern={{{dash}}}" if dash else "solid") if draws_line else "only marks"
    return (
        f"{_colour(style)}, mark={_MARKS[style.marker]}, mark size={size}pt, line width=0.9pt, {line}, "
        f"mark options={{solid, {fill}, line width=0.7pt{turned}}}"
    )
