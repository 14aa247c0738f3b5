"""What a schema cannot say of the service, told to the generator (tests/fuzz_api.sh).

A window ends after it begins, a phone is one that a country assigns, and a whole number is written
as 7 and not as 7.0: JSON Schema has no words for these. Logging out ends all tokens of a user, so
it is sent with a token that nothing else uses.
"""

import os
from datetime import datetime, timezone

import schemathesis
from hypothesis import strategies as st

TOKEN = os.environ.get("FUZZ_TOKEN")
PASSING_TOKEN = os.environ["FUZZ_PASSING_TOKEN"]
# Every number of these is a mobile number of China, as it is dialled there.
MOBILE = r"13[0-9]{9}"
WINDOWS = ("/api/admin/vouchers", "/api/admin/vouchers/{id}")

schemathesis.openapi.format("phone", st.from_regex(MOBILE, fullmatch=True))


def moment(text):
    try:
        return datetime.fromisoformat(text).astimezone(timezone.utc)
    except (OverflowError, TypeError, ValueError):
        return None


def order_window(body):
    """Orders the ends of a window; half of one, or one without length, gets ends of its own."""
    ends = [body.get(name) for name in ("starts_at", "ends_at")]
    first, last = map(moment, ends)
    if first and last and first != last:
        if first > last:
            body["starts_at"], body["ends_at"] = reversed(ends)
    elif ends != [None, None]:
        body["starts_at"], body["ends_at"] = "2000-01-02T00:00:00Z", "8999-12-31T00:00:00Z"


def plain_numbers(body):
    for name, value in body.items():
        if isinstance(value, float) and value.is_integer():
            body[name] = int(value)


def is_positive(case):
    return case.meta is None or case.meta.generation.mode.is_positive


@schemathesis.auth()
class Tokens:
    """The token of the way; logging out gets another one, and the way without a token none."""

    def get(self, case, context):
        return TOKEN

    def set(self, case, token, context):
        if token:
            own = PASSING_TOKEN if case.path == "/api/logout" else token
            case.headers = case.headers or {}
            case.headers["Authorization"] = f"Bearer {own}"


@schemathesis.hook
def before_call(context, case, kwargs):
    """Makes what the schema allows and cannot forbid into what the service takes."""
    if isinstance(case.body, dict) and is_positive(case):
        plain_numbers(case.body)
        if case.path in WINDOWS:
            order_window(case.body)


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """At the public address a new voucher has no audit: the proxy answers 404."""
    is_refused = b'"about:blank"' in response.content and response.status_code == 404
    return not (is_refused and case.path.endswith("/audit") and "not found" in failure.title)
