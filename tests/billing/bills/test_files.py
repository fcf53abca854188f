"""Files of a provider's bill: each form as it is published, and whatever is hostile refused with its line."""

import contextlib
import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.bills import files as bill_files
from billing.bills.files import BadBill, Form, read
from billing.bills.gaps import Cell, Side

OURS = "day,model,credential,calls,input,cached_input,output,cost\n"
LINE = "2026-10-05,gpt-x,prod,2,1200,800,1000,0.00216\n"
OPENAI_USAGE = (
    "start_time,end_time,start_time_iso,end_time_iso,project_id,num_model_requests,user_id,api_key_id,model,batch,"
    "input_tokens,output_tokens,input_cached_tokens,input_audio_tokens,output_audio_tokens\n"
    "1791158400,1791244800,2026-10-05T00:00:00+00:00,2026-10-06T00:00:00+00:00,,,,,,,,,,,\n"
    "1791244800,1791331200,2026-10-06T00:00:00+00:00,2026-10-07T00:00:00+00:00,proj_1,2.0,,key_1,gpt-x-2026-01-31,False,"
    "2000,1000,800,0,0\n"
)
OPENAI_COST = (
    "start_time,end_time,start_time_iso,end_time_iso,amount_value,amount_currency,quantity,quantity_unit,line_item,"
    "user_id,api_key_id,project_id\n"
    "1791158400,1791244800,2026-10-05T00:00:00+00:00,2026-10-06T00:00:00+00:00,,,,,,,,\n"
    "1791244800,1791331200,2026-10-06T00:00:00,2026-10-07T00:00:00,0.000560000000000000000000000000,usd,2000,tokens,"
    '"gpt-x-2026-01-31, input",,key_1,proj_1\n'
    "1791244800,1791331200,2026-10-06T00:00:00,2026-10-07T00:00:00,1.6e-03,usd,1000,tokens,"
    '"gpt-x-2026-01-31, output",,key_1,proj_1\n'
)
ANTHROPIC_USAGE = (
    "usage_date_utc,model_version,api_key,workspace,usage_type,context_window,usage_input_tokens_no_cache,"
    "usage_input_tokens_cache_write_5m,usage_input_tokens_cache_write_1h,usage_input_tokens_cache_read,"
    "usage_output_tokens,web_search_count,inference_geo,speed\n"
    "2026-10-05,claude-3-5-haiku-20241022,prod,Default,standard,\u2264 200k,600,100,50,400,500,1,not_available,\n"
)
ANTHROPIC_COST = (
    "usage_date_utc,model,workspace,api_key,usage_type,context_window,token_type,cost_usd,list_price_usd,cost_type,"
    "inference_geo,speed\n"
    "2026-10-05,Claude Haiku 3.5,Default,prod,message,\u2264 200k,input_no_cache,0.05,0.05,token,not_available,\n"
    "2026-10-05,Claude Haiku 3.5,Default,prod,message,\u2264 200k,output,0.02,0.02,token,not_available,\n"
)


def parsed(form: Form, *texts: str | bytes) -> bill_files.Bill:
    files = [(f"{number}.csv", text.encode() if isinstance(text, str) else text) for number, text in enumerate(texts)]
    return read(form, files)


def refusal(form: Form, *texts: str | bytes) -> str:
    """Why it is not read."""
    with pytest.raises(BadBill) as error:
        parsed(form, *texts)
    return str(error.value)


def test_our_own_form() -> None:
    bill = parsed(Form.METERLINE, OURS + LINE + "2026-10-06,gpt-x,prod,,,,,-1.5\n")
    counts = {"input": 1200, "cached_input": 800, "output": 1000}
    assert bill.cells == {
        Cell(date(2026, 10, 5), "gpt-x", "prod"): Side(2, counts, Decimal("0.00216")),
        Cell(date(2026, 10, 6), "gpt-x", "prod"): Side(None, {}, Decimal("-1.5")),  # a credit
    }
    assert bill.told == {"input", "cached_input", "output"}
    assert (bill.named_calls, bill.named_credentials) == (False, True)
    assert bill.days == (date(2026, 10, 5), date(2026, 10, 6))


def test_our_own_form_with_calls_by_name() -> None:
    bill = parsed(
        Form.METERLINE, "day,model,call,output,cost\n2026-10-05,m,chatcmpl-1,5,1\n2026-10-05,m,chatcmpl-2,5,1\n"
    )
    assert [(cell.call, side.calls) for cell, side in bill.cells.items()] == [("chatcmpl-1", 1), ("chatcmpl-2", 1)]
    assert bill.named_calls and not bill.named_credentials


def test_a_byte_order_mark_crlf_and_quotes_are_read() -> None:
    text = "\ufeff" + OURS.replace("\n", "\r\n") + LINE.replace("gpt-x", '"gpt-x"').replace("\n", "\r\n") + "\r\n"
    assert parsed(Form.METERLINE, text).cells == parsed(Form.METERLINE, OURS + LINE).cells


@pytest.mark.parametrize("first", [OPENAI_USAGE, OPENAI_COST])
def test_openais_exports(first: str) -> None:
    bill = parsed(Form.OPENAI, first, OPENAI_COST if first is OPENAI_USAGE else OPENAI_USAGE)
    counts = {"input": 1200, "cached_input": 800, "output": 1000}
    assert bill.cells == {Cell(date(2026, 10, 6), "gpt-x", "key_1"): Side(2, counts, Decimal("0.00216"))}
    assert bill.told == {"input", "cached_input", "output", "audio_input", "audio_output"}


def test_anthropics_exports() -> None:
    bill = parsed(Form.ANTHROPIC, ANTHROPIC_USAGE, ANTHROPIC_COST)
    counts = {"input": 600, "cached_input": 400, "cache_write_5m": 100, "cache_write_1h": 50, "output": 500,
              "web_search": 1}  # fmt: skip
    name = bill_files.model_name(Form.ANTHROPIC, "claude-3-5-haiku-20241022")
    assert bill.cells == {Cell(date(2026, 10, 5), name, "prod"): Side(None, counts, Decimal("0.07"))}
    assert name == bill_files.model_name(Form.ANTHROPIC, "claude-3-5-haiku")


def page(*buckets: tuple[dict[str, Any], list[dict[str, Any]]], has_more: bool = False) -> str:
    """A page of an API's answer."""
    return json.dumps({"data": [{**bucket, "results": results} for bucket, results in buckets], "has_more": has_more})


def test_the_answers_of_openais_apis() -> None:
    """As its API reference shows them, but for amounts."""
    bucket = {"object": "bucket", "start_time": 1791244800, "end_time": 1791331200}
    usage = {"object": "organization.usage.completions.result", "input_tokens": 2000, "output_tokens": 1000,
             "input_cached_tokens": 800, "input_audio_tokens": 0, "output_audio_tokens": 0, "num_model_requests": 2,
             "project_id": None, "user_id": None, "api_key_id": None, "model": "gpt-x-2026-01-31"}  # fmt: skip
    costs = {"object": "organization.costs.result", "amount": {"value": 0.00216, "currency": "usd"},
             "line_item": "gpt-x-2026-01-31, input", "project_id": None}  # fmt: skip
    bill = parsed(
        Form.OPENAI, page((bucket, [usage])), page(({**bucket, "start_time": 1791158400}, []), (bucket, [costs]))
    )
    counts = {"input": 1200, "cached_input": 800, "output": 1000}
    assert bill.cells == {Cell(date(2026, 10, 6), "gpt-x"): Side(2, counts, Decimal("0.00216"))}


def test_the_answers_of_anthropics_apis() -> None:
    """As its API reference shows them; an amount is in cents."""
    bucket = {"starting_at": "2026-10-05T00:00:00Z", "ending_at": "2026-10-06T00:00:00Z"}
    usage = {"api_key_id": "apikey_01", "cache_creation": {"ephemeral_1h_input_tokens": 1000,
             "ephemeral_5m_input_tokens": 500}, "cache_read_input_tokens": 200, "context_window": "0-200k",
             "inference_geo": "global", "model": "claude-opus-5", "output_tokens": 500, "service_tier": "standard",
             "server_tool_use": {"web_search_requests": 10}, "uncached_input_tokens": 1500}  # fmt: skip
    cost = {"amount": "123.456789", "context_window": "0-200k", "cost_type": "tokens", "currency": "USD",
            "description": "Claude Opus 5 Usage - Input Tokens", "model": "claude-opus-5", "service_tier": "standard",
            "token_type": "uncached_input_tokens", "workspace_id": None}  # fmt: skip
    search = {"amount": "10", "cost_type": "web_search", "currency": "USD", "model": None, "token_type": None}
    pages = [json.loads(page((bucket, [cost]), has_more=True)), json.loads(page((bucket, [search])))]
    bill = parsed(Form.ANTHROPIC, page((bucket, [usage])), json.dumps(pages))
    counts = {"input": 1500, "cached_input": 200, "cache_write_5m": 500, "cache_write_1h": 1000, "output": 500,
              "web_search": 10}  # fmt: skip
    day = date(2026, 10, 5)
    assert bill.cells == {
        Cell(day, bill_files.model_name(Form.ANTHROPIC, "claude-opus-5")): Side(None, counts, Decimal("1.23456789")),
        Cell(day, bill_files.model_name(Form.ANTHROPIC, "web_search")): Side(None, {}, Decimal("0.1")),
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "It is no JSON."),
        ("[" * 100_000, "It is no JSON."),
        ("{}", "It has not the form of a page"),
        ("[]", "Its last page says that there are more"),
        ('[["data"]]', "It has not the form of a page"),
        ('{"data": [{"start_time": 1, "results": ["a"]}]}', "It has not the form of a page"),
        ('{"data": [{"start_time": [1], "results": [{"model": "m"}]}]}', "It has not the form of a page"),
        ('{"data": [], "has_more": true}', "Its last page says that there are more"),
        ('{"data": [{"start_time": 1, "results": []}]}', "Line 1 has not all of the columns"),
        (page(({"start_time": 1791244800}, [{"amount": {"value": float("nan"), "currency": "usd"}, "line_item": "m"}])),
         "Result 1: amount_value is no amount: 'NaN'."),
        (page(({"start_time": 1791244800}, [{"amount": {"value": 1, "currency": "usd"}, "line_item": "m"}] * 2)),
         "Result 2 repeats result 1."),
        (page(({"start_time": 1}, [{f"f{number}": "" for number in range(1000)}])), "Its results have more than"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_refused(text: str, why: str) -> None:
    assert refusal(Form.OPENAI, text).startswith(f"0.csv: {why}")


def test_a_credential_counts_where_both_files_name_it() -> None:
    cost = OPENAI_COST.replace(",key_1,", ",,")
    bill = parsed(Form.OPENAI, OPENAI_USAGE, cost)
    assert [cell.credential for cell in bill.cells] == [""] and not bill.named_credentials


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "0.csv: Line 1 is no header"),
        ("\n\n", "0.csv: Line 1 is no header"),
        ("day,model,cost,day\n", "0.csv: Line 1 is no header"),
        (",".join(map(str, range(101))), "0.csv: Line 1 is no header"),
        ("day,model\n", "0.csv: Line 1 has not all of the columns day, model, cost."),
        ("day,model,cost,tokens\n", "0.csv: Line 1: 'tokens' is no column of a bill."),
        (OURS, "There is nothing in it."),
        (OURS + LINE + LINE, "0.csv: Line 3 repeats line 2."),
        (OURS + LINE + LINE.replace("0.00216", "9"), "0.csv: Line 3 repeats line 2."),
        (OURS + "\n" + LINE.replace("2026-10-05", "2026-13-05"), "0.csv: Line 3: day is no day: '2026-13-05'."),
        (OURS + LINE.replace("2026-10-05", "5.10.2026"), "0.csv: Line 2: day is no day: '5.10.2026'."),
        (OURS + LINE.replace("gpt-x", "=cmd()"), "0.csv: Line 2: model is no name: '=cmd()'."),
        (OURS + LINE.replace("prod", " @sum"), "0.csv: Line 2: credential is no name: '@sum'."),
        (OURS + LINE.replace("prod", "\uff1dsum"), "0.csv: Line 2: credential is no name: '\uff1dsum'."),
        (OURS + LINE.replace("prod", "a\u202eb"), "0.csv: Line 2: credential is no name: 'a\\u202eb'."),
        (OURS + LINE.replace("gpt-x", ""), "0.csv: Line 2: model is empty."),
        (OURS + LINE.replace("gpt-x", "m" * 201), f"0.csv: Line 2: model is no name: '{'m' * 200}'."),
        (OURS + LINE.replace("1200", "-1"), "0.csv: Line 2: input is no count: '-1'."),
        (OURS + LINE.replace("1200", "1.5"), "0.csv: Line 2: input is no count: '1.5'."),
        (OURS + LINE.replace("1200", "9" * 16), f"0.csv: Line 2: input is no count: '{'9' * 16}'."),
        (OURS + LINE.replace("1200", "\u0661"), "0.csv: Line 2: input is no count: '\u0661'."),
        (OURS + LINE.replace("0.00216", "NaN"), "0.csv: Line 2: cost is no amount: 'NaN'."),
        (OURS + LINE.replace("0.00216", "1e9"), "0.csv: Line 2: cost is no amount: '1e9'."),
        (OURS + LINE.replace("0.00216", "$1"), "0.csv: Line 2: cost is no amount: '$1'."),
        (OURS + LINE.replace("\n", ",1\n"), "0.csv: Line 2 has 9 cells, the header 8."),
        (OURS + '"2026-10-05,', "0.csv: Line 2: unexpected end of data."),
        (OURS + LINE.replace("gpt-x", "gpt\0x"), "0.csv: Line 2 has a NUL in it."),
        ((OURS + LINE).encode() + b"\xff", "0.csv: Line 3 is not UTF-8."),
        ((OURS + LINE).encode("utf-16"), "0.csv: Line 1 is not UTF-8."),
        (OURS + LINE + LINE.replace("2026", "2024"), "It is of more than 400 days."),
    ],
)  # fmt: skip
def test_what_is_not_as_it_must_be_is_refused_with_its_line(text: str | bytes, why: str) -> None:
    assert refusal(Form.METERLINE, text).startswith(why)


def test_a_call_that_has_a_name_is_one() -> None:
    text = "day,model,call,calls,cost\n2026-10-05,m,c1,2,1\n"
    assert refusal(Form.METERLINE, text) == "0.csv: Line 2: a call that has a name is one call."


def test_size_and_lines_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(Form.METERLINE, b"a" * ((16 << 20) + 1)) == "0.csv: It is larger than 16 MiB."
    monkeypatch.setattr(bill_files, "MOST_LINES", 2)
    text = OURS + "".join(LINE.replace("gpt-x", f"gpt-{number}") for number in range(3))
    assert refusal(Form.METERLINE, text) == "0.csv: Line 4: there are more than 2 lines."


def test_a_vendors_bill_is_both_of_its_files() -> None:
    for form, files in (
        (Form.OPENAI, (OPENAI_USAGE, OPENAI_COST)),
        (Form.ANTHROPIC, (ANTHROPIC_USAGE, ANTHROPIC_COST)),
    ):
        for given_ in ([files[0]], [files[1]], [files[0], files[0]], [*files, files[1]]):
            assert refusal(form, *given_) == f"A bill in the form {form} is one file each of: cost, usage."


@pytest.mark.parametrize(
    ("form", "text", "why"),
    [
        (Form.OPENAI, OPENAI_COST.replace(",usd,2000", ",eur,2000"), "Line 3: amount_currency is not usd."),
        (Form.OPENAI, OPENAI_COST.replace("gpt-x-2026-01-31, input", ""), "Line 3: line_item is empty."),
        (Form.OPENAI, OPENAI_USAGE.replace(",800,", ",2001,"), "Line 3: input_cached_tokens is more than input_tokens"),
        (
            Form.OPENAI,
            OPENAI_USAGE.replace("1791244800,", "soon,"),
            "Line 3: start_time is no time",
        ),
        (Form.OPENAI, OPENAI_USAGE + OPENAI_USAGE.splitlines(keepends=True)[2], "Line 4 repeats line 3."),
        (Form.ANTHROPIC, ANTHROPIC_COST.replace("0.05,0.05", "0x5,0.05"), "Line 2: cost_usd is no amount: '0x5'."),
    ],
)
def test_a_vendors_file_is_read_as_strictly(form: Form, text: str, why: str) -> None:
    assert refusal(form, text).startswith(f"0.csv: {why}")


@given(st.sampled_from(list(Form)), st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_whatever_is_sent_is_read_or_refused(form: Form, data: bytes) -> None:
    for start in (b"", OURS.encode(), OPENAI_COST.encode(), ANTHROPIC_USAGE.encode(), b'{"data": ['):
        with contextlib.suppress(BadBill):
            read(form, [("a", start + data)])
