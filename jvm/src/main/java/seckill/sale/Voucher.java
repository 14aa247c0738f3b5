package seckill.sale;

import java.time.LocalDateTime;

import seckill.web.Problem;

/** A voucher and what is left of it. Times are UTC, {@code now} by the database. */
public record Voucher(
        long id,
        String title,
        String description,
        long priceCents,
        long faceValueCents,
        LocalDateTime startsAt,
        LocalDateTime endsAt,
        boolean onSale,
        int stock,
        LocalDateTime now) {

    /** {@code not_on_sale}, {@code not_started}, {@code open} or {@code ended}. */
    public String phase() {
        if (!onSale) {
            return "not_on_sale";
        }
        if (now.isBefore(startsAt)) {
            return "not_started";
        }
        return now.isBefore(endsAt) ? "open" : "ended";
    }

    /** Refuses unless a unit can be bought now, at that price if one is named. */
    void checkOpen(Long price) {
        switch (phase()) {
            case "not_on_sale" -> throw Problem.notOnSale();
            case "not_started" -> throw Problem.notStarted(startsAt);
            case "ended" -> throw Problem.ended(endsAt);
            default -> { }
        }
        if (stock < 1) {
            throw Problem.soldOut();
        }
        if (price != null && price != priceCents) {
            throw Problem.priceChanged(priceCents);
        }
    }
}
