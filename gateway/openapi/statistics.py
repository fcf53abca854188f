"""The answers of the statistics as types: what the OpenAPI document says of them. Nothing is encoded with them.

The tests compare them with what a running gateway sends.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

UsageMetric = Literal["tokens", "cost"]
Width = Literal["1d", "1w"]
Value = Annotated[float, Meta(description="Tokens, or dollars, exact.")]
Date = Annotated[str, Meta(extra_json_schema={"format": "date"})]
Rank = Annotated[int, Meta(ge=1)]
Period = Annotated[str, Meta(pattern="^([0-9]{8}|[0-9]{6})$", description="YYYYMMDD, or YYYYWW of the ISO week.")]


class ModelValue(Struct):
    """What a model was used; all others together are `__others__`."""

    model: str
    label: str
    value: Value


class ModelBucket(Struct):
    """A day or a week."""

    period: Period
    date: Date
    models: list[ModelValue]


class TimeseriesData(Struct):
    """Use over time, by model."""

    metric: UsageMetric
    bucket_width: Width
    starting_at: Date
    ending_at: Date
    total_buckets: int
    series: list[ModelBucket]


class TimeseriesAnswer(Struct):
    """Use over time, by model."""

    success: Literal[True]
    data: TimeseriesData


class AuthorValue(Struct):
    """What an author's models were used; all others together are `__others__`."""

    author: str
    label: str
    value: Value


class AuthorBucket(Struct):
    """A day or a week."""

    period: Period
    date: Date
    authors: list[AuthorValue]


class MarketShareData(Struct):
    """Use over time, by author."""

    metric: UsageMetric
    bucket_width: Width
    starting_at: Date
    ending_at: Date
    total_buckets: int
    series: list[AuthorBucket]


class MarketShareAnswer(Struct):
    """Use over time, by author."""

    success: Literal[True]
    data: MarketShareData


class RankedModel(Struct):
    """A model and its place; that of `__others__` is behind the last."""

    rank: Rank
    model: str
    label: str
    author: str
    author_label: str
    value: Value


class LeaderboardData(Struct):
    """The models by use."""

    metric: UsageMetric
    starting_at: Date
    ending_at: Date
    entries: list[RankedModel]


class LeaderboardAnswer(Struct):
    """The models by use."""

    success: Literal[True]
    data: LeaderboardData


class DateValue(Struct):
    """A day's use."""

    date: Date
    value: Value


class ModelUsageData(Struct):
    """One model's use, by day."""

    model: str
    label: str
    metric: UsageMetric
    starting_at: Date
    ending_at: Date
    value: Value
    series: list[DateValue]


class ModelUsageAnswer(Struct):
    """One model's use, by day."""

    success: Literal[True]
    data: ModelUsageData


class DataPoint(Struct):
    """A day's use."""

    period: Period
    value: Value


class Trend(Struct):
    """How a model's use grows: `value` against `previous_value`, each of a day or of seven."""

    rank: Rank
    model: str
    label: str
    author: str
    author_label: str
    icon_url: None
    value: Value
    total_value: Annotated[float, Meta(description="Of all data points together.")]
    previous_value: Value
    growth_rate: Annotated[float, Meta(description="Smoothed; 0.5 is half as much again.")]
    growth_label: str
    data_points: list[DataPoint]


class TrendingData(Struct):
    """The models whose use grows."""

    metric: UsageMetric
    bucket_width: Width
    ending_at: Date
    entries: list[Trend]


class TrendingAnswer(Struct):
    """The models whose use grows."""

    success: Literal[True]
    data: TrendingData


class ProviderPerformance(Struct):
    """How a provider did."""

    provider: str
    label: str
    value: float
    requests: Annotated[int, Meta(ge=0)]


class ApiPerformance(Struct):
    """Of one surface."""

    api: str
    value: float


class ProviderApis(Struct):
    """Of one provider, by surface."""

    label: str
    apis: list[ApiPerformance]


class ModelPerformance(Struct):
    """How a model did."""

    rank: Rank
    model: str
    label: str
    icon_url: None
    value: float
    providers: Annotated[
        list[ProviderPerformance] | dict[str, ProviderApis],
        Meta(description="The best first; of cache hits, by the provider's slug."),
    ]
    top_provider: Annotated[ProviderPerformance | UnsetType, Meta(description="Of cache hits.")] = UNSET


class PerformanceData(Struct):
    """The models that did best."""

    metric: Literal["throughput", "ttft", "cache_hit"]
    starting_at: Date
    ending_at: Date
    entries: Annotated[list[ModelPerformance], Meta(max_length=10)]


class PerformanceAnswer(Struct):
    """The models that did best."""

    success: Literal[True]
    data: PerformanceData
