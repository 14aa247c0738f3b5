package seckill.web;

import java.io.IOException;
import java.util.UUID;
import java.util.regex.Pattern;

import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;

import org.springframework.stereotype.Component;
import org.springframework.web.filter.OncePerRequestFilter;

import seckill.Options;

/** Gives each request an id, and each answer that id and the replica's name. */
@Component
class ReplicaFilter extends OncePerRequestFilter {
    private static final String REQUEST_ID = "X-Request-Id";
    private static final Pattern FIT = Pattern.compile("[!-~]{1,64}");
    private final Options options;

    ReplicaFilter(Options options) {
        this.options = options;
    }

    static String requestId(HttpServletRequest request) {
        return (String) request.getAttribute(REQUEST_ID);
    }

    @Override
    protected void doFilterInternal(
            HttpServletRequest request, HttpServletResponse response, FilterChain chain)
            throws ServletException, IOException {
        String given = request.getHeader(REQUEST_ID);
        boolean isFit = given != null && FIT.matcher(given).matches();
        String id = isFit ? given : UUID.randomUUID().toString();
        request.setAttribute(REQUEST_ID, id);
        response.setHeader(REQUEST_ID, id);
        response.setHeader("X-Replica", options.replica());
        response.setHeader("Cache-Control", "no-store");
        if (options.lab()) {
            boolean isSound = options.bug() == Options.Bug.NONE;
            response.setHeader("X-Lab", isSound ? "lab" : "lab, injected bug " + options.bug());
        }
        chain.doFilter(request, response);
    }
}
