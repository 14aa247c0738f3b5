package seckill.sale;

import java.time.OffsetDateTime;
import java.time.ZoneOffset;

import seckill.web.Problem;

/** A voucher to create, as its admin sends it. */
public record NewVoucher(
        String title,
        String description,
        Long priceCents,
        Long faceValueCents,
        OffsetDateTime startsAt,
        OffsetDateTime endsAt,
        Integer stock) {
    private static final int MAX_TITLE = 100;
    private static final int MAX_DESCRIPTION = 1000;
    private static final int FIRST_YEAR = 2000;
    private static final int LAST_YEAR = 8999;
    private static final int MAX_UNITS = 1_000_000;
    private static final long MAX_CENTS = 10_000_000_000L;

    /** Refuses what the service itself would refuse; the answer names the field. */
    public void check() {
        text("title", title, 1, MAX_TITLE);
        text("description", description, 0, MAX_DESCRIPTION);
        checkCents("price_cents", priceCents);
        checkCents("face_value_cents", faceValueCents);
        checkYear("starts_at", startsAt);
        checkYear("ends_at", endsAt);
        checkUnits("stock", stock);
        if (!startsAt.isBefore(endsAt)) {
            throw invalid("ends_at", "must be after starts_at");
        }
    }

    /** What the field of that name must be; a name means the same in all bodies. */
    public static String mustBe(String field) {
        return switch (field) {
            case "title" -> "must be text of 1 to " + MAX_TITLE + " characters";
            case "description" -> "must be text of at most " + MAX_DESCRIPTION + " characters";
            case "price_cents", "face_value_cents" ->
                    "must be a whole number from 0 to " + MAX_CENTS;
            case "stock", "units" -> "must be a whole number from 1 to " + MAX_UNITS;
            case "starts_at", "ends_at" ->
                    "must be a moment as in RFC 3339, such as 2026-11-11T20:00:00+08:00";
            default -> "has the wrong type";
        };
    }

    /** Refuses a number of units that nothing may have. */
    public static void checkUnits(String field, int units) {
        if (units < 1 || units > MAX_UNITS) {
            throw invalid(field, mustBe(field));
        }
    }

    /** Refuses a price that nothing may have. */
    public static void checkCents(String field, long cents) {
        if (cents < 0 || cents > MAX_CENTS) {
            throw invalid(field, mustBe(field));
        }
    }

    private static void text(String field, String text, int least, int most) {
        int length = text.codePointCount(0, text.length());
        if (length < least || length > most) {
            throw invalid(field, mustBe(field));
        }
    }

    private static void checkYear(String field, OffsetDateTime moment) {
        int year = moment.withOffsetSameInstant(ZoneOffset.UTC).getYear();
        if (year < FIRST_YEAR || year > LAST_YEAR) {
            throw invalid(field,
                    "must be of the years " + FIRST_YEAR + " to " + LAST_YEAR);
        }
    }

    private static Problem invalid(String field, String limit) {
        return Problem.invalid("invalid_body", field, limit);
    }
}
