package seckill.sale;

import java.time.OffsetDateTime;

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
    private static final int MAX_UNITS = 1_000_000;
    private static final long MAX_CENTS = 10_000_000_000L;

    /** Refuses what the service itself would refuse; the answer names the field. */
    public void check() {
        text("title", title, 1, 100);
        text("description", description, 0, 1000);
        cents("price_cents", priceCents);
        cents("face_value_cents", faceValueCents);
        if (startsAt == null || endsAt == null || !startsAt.isBefore(endsAt)) {
            throw Problem.invalid("invalid_body", "ends_at", "must be after starts_at");
        }
        checkUnits("stock", stock);
    }

    static void checkUnits(String field, Integer units) {
        if (units == null || units < 1 || units > MAX_UNITS) {
            throw Problem.invalid(
                    "invalid_body", field, "must be a whole number from 1 to " + MAX_UNITS);
        }
    }

    private static void text(String field, String text, int least, int most) {
        if (text == null || text.length() < least || text.length() > most) {
            throw Problem.invalid("invalid_body", field,
                    "must be text of " + least + " to " + most + " characters");
        }
    }

    private static void cents(String field, Long cents) {
        if (cents == null || cents < 0 || cents > MAX_CENTS) {
            throw Problem.invalid(
                    "invalid_body", field, "must be a whole number from 0 to " + MAX_CENTS);
        }
    }
}
