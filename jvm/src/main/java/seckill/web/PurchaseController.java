package seckill.web;

import java.net.URI;

import jakarta.servlet.http.HttpServletRequest;

import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestAttribute;
import org.springframework.web.bind.annotation.RestController;

import seckill.Options;
import seckill.lock.HoldTimes;
import seckill.sale.NewVoucher;
import seckill.sale.Order;
import seckill.sale.PurchaseService;
import seckill.web.JsonFields.MayBeAbsent;
import seckill.web.Views.OrderAnswer;
import seckill.web.Views.OrderView;

/** Sells vouchers. */
@RestController
class PurchaseController {
    private final PurchaseService purchases;
    private final Metrics metrics;
    private final Options options;

    PurchaseController(PurchaseService purchases, Metrics metrics, Options options) {
        this.purchases = purchases;
        this.metrics = metrics;
        this.options = options;
    }

    /** What a purchase may state: the price that the buyer saw. */
    record OrderRequest(@MayBeAbsent Long priceCents) {}

    @PostMapping("/api/vouchers/{id}/orders")
    ResponseEntity<?> buy(
            @PathVariable VoucherId id,
            @RequestAttribute(LoginInterceptor.USER) long user,
            @JsonBody(optional = true) OrderRequest body,
            HttpServletRequest request) {
        Long price = body == null ? null : body.priceCents();
        if (price != null) {
            NewVoucher.checkCents("price_cents", price);
        }
        var times = new HoldTimes();
        ResponseEntity<?> answer;
        try {
            Order order =
                    metrics.count(times, () -> purchases.purchase(user, id.value(), price, times));
            answer = ResponseEntity.created(URI.create("/api/orders/" + order.id()))
                    .body(new OrderAnswer(OrderView.of(order)));
        } catch (RuntimeException error) {
            answer = ProblemAdvice.problem(error).answer(ReplicaFilter.requestId(request));
        }
        return options.lab() ? withHoldTimes(answer, times) : answer;
    }

    /** Says when the lock was held, as the judge reads it. */
    private static ResponseEntity<?> withHoldTimes(ResponseEntity<?> answer, HoldTimes times) {
        return times.report()
                .<ResponseEntity<?>>map(held -> ResponseEntity.status(answer.getStatusCode())
                        .headers(answer.getHeaders())
                        .header("X-Lab-Held", held)
                        .body(answer.getBody()))
                .orElse(answer);
    }
}
