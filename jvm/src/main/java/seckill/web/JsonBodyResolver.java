package seckill.web;

import java.io.IOException;
import java.io.InputStream;
import java.util.Collections;
import java.util.Objects;

import jakarta.servlet.http.HttpServletRequest;

import org.springframework.core.MethodParameter;
import org.springframework.http.HttpHeaders;
import org.springframework.http.MediaType;
import org.springframework.stereotype.Component;
import org.springframework.web.bind.support.WebDataBinderFactory;
import org.springframework.web.context.request.NativeWebRequest;
import org.springframework.web.method.support.HandlerMethodArgumentResolver;
import org.springframework.web.method.support.ModelAndViewContainer;

/**
 * Reads bodies as the Rust replica does, with the same refusals. {@code @RequestBody} would take
 * more content types, refuse an absent body by its type, and ignore what it does not know.
 */
@Component
class JsonBodyResolver implements HandlerMethodArgumentResolver {
    private static final int MAX_BYTES = 16_384;

    @Override
    public boolean supportsParameter(MethodParameter parameter) {
        return parameter.hasParameterAnnotation(JsonBody.class);
    }

    @Override
    public Object resolveArgument(
            MethodParameter parameter,
            ModelAndViewContainer container,
            NativeWebRequest webRequest,
            WebDataBinderFactory factory)
            throws IOException {
        var request =
                Objects.requireNonNull(webRequest.getNativeRequest(HttpServletRequest.class));
        var body = Objects.requireNonNull(parameter.getParameterAnnotation(JsonBody.class));
        if (!body.optional()) {
            requireJson(request);
            return JsonFields.parse(read(request), parameter.getParameterType());
        }
        byte[] bytes = read(request);
        if (bytes.length == 0) {
            return null;
        }
        requireJson(request);
        return JsonFields.parse(bytes, parameter.getParameterType());
    }

    private static void requireJson(HttpServletRequest request) {
        String type = Objects.requireNonNullElse(request.getContentType(), "").split(";", 2)[0];
        if (!type.trim().equalsIgnoreCase(MediaType.APPLICATION_JSON_VALUE)) {
            throw Problem.notJson();
        }
        var codings = Collections.list(request.getHeaders(HttpHeaders.CONTENT_ENCODING));
        if (!codings.stream().allMatch("identity"::equalsIgnoreCase)) {
            throw Problem.bodyEncoded();
        }
    }

    private static byte[] read(HttpServletRequest request) throws IOException {
        if (request.getContentLengthLong() > MAX_BYTES) {
            throw Problem.bodyTooLarge();
        }
        try (InputStream body = request.getInputStream()) {
            byte[] bytes = body.readNBytes(MAX_BYTES + 1);
            if (bytes.length > MAX_BYTES) {
                throw Problem.bodyTooLarge();
            }
            return bytes;
        }
    }
}
