package seckill.web;

import java.net.URI;

import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RestController;

import seckill.sale.NewVoucher;
import seckill.sale.SaleMapper;
import seckill.sale.VoucherService;
import seckill.web.Views.AuditTables;
import seckill.web.Views.AuditView;
import seckill.web.Views.VoucherAnswer;
import seckill.web.Views.VoucherView;

/** What the laboratory's admin does: puts a voucher on sale, adds units, and reads the audit. */
@RestController
@RequestMapping("/api/admin/vouchers")
class AdminController {
    private final VoucherService vouchers;
    private final AuditTables tables;

    AdminController(VoucherService vouchers, SaleMapper mapper) {
        this.vouchers = vouchers;
        tables = new AuditTables(mapper.ordersTable(), mapper.stockTable(), "stock_grants");
    }

    /** An object without fields. */
    record Nothing() {}

    /** Units to add. */
    record MoreStock(Integer units) {}

    @PostMapping
    ResponseEntity<VoucherAnswer> create(@JsonBody NewVoucher draft) {
        draft.check();
        var voucher = VoucherView.of(vouchers.create(draft));
        return ResponseEntity.created(URI.create("/api/vouchers/" + voucher.id()))
                .body(new VoucherAnswer(voucher));
    }

    @PostMapping("/{id}/on-sale")
    VoucherAnswer putOnSale(@PathVariable VoucherId id, @JsonBody(optional = true) Nothing body) {
        return new VoucherAnswer(VoucherView.of(vouchers.putOnSale(id.value())));
    }

    @PostMapping("/{id}/stock")
    VoucherAnswer addStock(@PathVariable VoucherId id, @JsonBody MoreStock more) {
        NewVoucher.checkUnits("units", more.units());
        return new VoucherAnswer(VoucherView.of(vouchers.addStock(id.value(), more.units())));
    }

    @GetMapping("/{id}/audit")
    AuditView audit(@PathVariable VoucherId id) {
        return AuditView.of(id.value(), vouchers.audit(id.value()), tables);
    }
}
