package seckill.web;

import java.util.Collections;

import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;

import org.springframework.context.annotation.Configuration;
import org.springframework.http.HttpHeaders;
import org.springframework.web.servlet.HandlerInterceptor;
import org.springframework.web.servlet.config.annotation.InterceptorRegistry;
import org.springframework.web.servlet.config.annotation.WebMvcConfigurer;

import seckill.sale.VoucherService;

/** Lets users in by their token, and admins if the database knows them as such. */
@Configuration(proxyBeanMethods = false)
class LoginInterceptor implements HandlerInterceptor, WebMvcConfigurer {
    /** The attribute of a request that names its user. */
    static final String USER = "seckill.user";
    private final Tokens tokens;
    private final VoucherService vouchers;

    LoginInterceptor(Tokens tokens, VoucherService vouchers) {
        this.tokens = tokens;
        this.vouchers = vouchers;
    }

    @Override
    public void addInterceptors(InterceptorRegistry registry) {
        registry.addInterceptor(this).addPathPatterns("/api/vouchers/*/orders", "/api/admin/**");
    }

    @Override
    public boolean preHandle(
            HttpServletRequest request, HttpServletResponse response, Object handler) {
        var headers = Collections.list(request.getHeaders(HttpHeaders.AUTHORIZATION));
        Tokens.Identity identity = tokens.identity(headers);
        if (request.getRequestURI().startsWith("/api/admin/")) {
            checkAdmin(identity);
        }
        request.setAttribute(USER, identity.user());
        return true;
    }

    private void checkAdmin(Tokens.Identity identity) {
        boolean isAdmin = identity.admin() && vouchers.isAdmin(identity.user()).orElseThrow(
                () -> Problem.badToken("The token was revoked; log in again."));
        if (!isAdmin) {
            throw Problem.forbidden();
        }
    }
}
