"""Chinese: as in English, with ISO 8601 first. Django's own begin with times without seconds, which a form that is sent
back as it came would cut off; and what is drafted in one language is applied in another.
"""

DATE_INPUT_FORMATS = ["%Y-%m-%d", "%Y/%m/%d", "%Y年%m月%d日"]
TIME_INPUT_FORMATS = ["%H:%M:%S", "%H:%M:%S.%f", "%H:%M"]
DATETIME_INPUT_FORMATS = [f"{day} {time}" for day in DATE_INPUT_FORMATS for time in TIME_INPUT_FORMATS]
