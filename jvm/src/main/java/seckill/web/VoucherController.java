package seckill.web;

import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RestController;

import seckill.sale.Voucher;
import seckill.sale.VoucherService;
import seckill.web.Views.TimedVoucher;
import seckill.web.Views.VoucherView;

/** Vouchers, as customers see them. */
@RestController
class VoucherController {
    private final VoucherService vouchers;

    VoucherController(VoucherService vouchers) {
        this.vouchers = vouchers;
    }

    @GetMapping("/api/vouchers/{id}")
    TimedVoucher one(@PathVariable VoucherId id) {
        Voucher voucher = vouchers.find(id.value());
        if (!voucher.onSale()) {
            throw Problem.voucherNotFound();
        }
        return new TimedVoucher(Views.utc(voucher.now()), VoucherView.of(voucher));
    }
}
