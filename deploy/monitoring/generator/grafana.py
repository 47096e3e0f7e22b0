"""Grafana's JSON model of the dashboard, as dictionaries. Panels are numbered in order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from string import ascii_uppercase
from typing import Any

from deploy.monitoring.generator.panels import Look, Panel, Query, Row

UID = "enricher"
SCHEMA_VERSION = 39
"""Of Grafana 11; newer versions migrate it when they load it."""
_GRID_WIDTH = 24
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}

Json = dict[str, Any]


def dashboard(rows: Sequence[Row]) -> Json:
    """The whole model."""
    return {
        "uid": UID,
        "title": "enricher",
        "description": "Workers that find entities in articles. Made by scripts/dashboard; change it there.",
        "tags": ["enricher", "kafka"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,  # one crosshair in all panels
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(_variables())},
        "annotations": {"list": []},
        "links": [],
        "panels": list(_placed(rows)),
    }


def as_text(model: Json) -> str:
    """The model as the text of the file."""
    return json.dumps(model, indent=2, ensure_ascii=False) + "\n"


def _variables() -> Iterator[Json]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}
    yield _variable("namespace", "Namespace", "label_values(enricher_state, namespace)")
    yield _variable("job", "Group of workers", 'label_values(enricher_state{namespace=~"$namespace"}, job)')
    workers = 'label_values(enricher_state{namespace=~"$namespace", job=~"$job"}, instance)'
    yield _variable("instance", "Worker", workers)


def _variable(name: str, label: str, query: str) -> Json:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,  # when the time range changes, because workers come and go
        "includeAll": True,
        "allValue": ".*",  # also matches series without the label: outside Kubernetes there is no namespace
        "multi": True,
        "sort": 1,
        "current": {"text": "All", "value": "$__all"},
    }


def _placed(rows: Sequence[Row]) -> Iterator[Json]:
    """Place rows from top to bottom and panels from left to right; a panel that does not fit begins a new line."""
    number, top = 0, 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": _GRID_WIDTH, "h": 1},
        }
        top += 1
        left, line_height = 0, 0
        for panel in row.panels:
            if left + panel.width > _GRID_WIDTH:
                left, top, line_height = 0, top + line_height, 0
            number += 1
            yield _panel(panel, number, {"x": left, "y": top, "w": panel.width, "h": panel.height})
            left, line_height = left + panel.width, max(line_height, panel.height)
        top += line_height


def _panel(panel: Panel, number: int, place: Json) -> Json:
    return {
        "id": number,
        "type": panel.look.value,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": [_target(panel, query, sign) for query, sign in zip(panel.queries, ascii_uppercase, strict=False)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _OPTIONS[panel.look],
        "transformations": _transformations(panel),
    }


def _target(panel: Panel, query: Query, sign: str) -> Json:
    at_once = panel.look in {Look.NUMBER, Look.TABLE}
    return {
        "refId": sign,
        "datasource": _SOURCE,
        "expr": query.expression,
        "legendFormat": query.legend or "__auto",
        "instant": at_once,
        "range": not at_once,
        "format": {Look.HEATMAP: "heatmap", Look.TABLE: "table"}.get(panel.look, "time_series"),
    }


def _defaults(panel: Panel) -> Json:
    defaults: Json = {"unit": panel.unit.value, "thresholds": {"mode": "absolute", "steps": _steps(panel)}}
    if panel.look is Look.LINES:
        defaults |= {"min": 0, "custom": _lines(panel)}
    if panel.top is not None:
        defaults["max"] = panel.top
    if panel.look is Look.NUMBER and panel.thresholds:
        defaults["color"] = {"mode": "thresholds"}
    return defaults


def _steps(panel: Panel) -> list[Json]:
    """The first step has no value: its colour applies to everything below the second step."""
    first, *others = panel.thresholds or ((0.0, "text"),)
    return [{"color": first[1], "value": None}, *({"color": colour, "value": value} for value, colour in others)]


def _lines(panel: Panel) -> Json:
    return {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 30 if panel.stacked else 8,
        "showPoints": "never",
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "line" if panel.thresholds else "off"},
    }


def _transformations(panel: Panel) -> list[Json]:
    """Show labels as columns, and hide the time of the query."""
    if panel.look is not Look.TABLE:
        return []
    return [{"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": {"Value": "workers"}}}]


_OPTIONS: dict[Look, Json] = {
    Look.LINES: {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    Look.NUMBER: {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "none",
        "textMode": "value",
    },
    Look.HEATMAP: {
        "calculate": False,
        "color": {"mode": "scheme", "scheme": "Blues", "steps": 64},
        "yAxis": {"unit": "s"},
        "legend": {"show": True},
    },
    Look.TABLE: {"showHeader": True, "cellHeight": "sm"},
}
