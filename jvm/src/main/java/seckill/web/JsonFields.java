package seckill.web;

import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.reflect.RecordComponent;
import java.time.DateTimeException;
import java.time.OffsetDateTime;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

import tools.jackson.core.JacksonException;
import tools.jackson.core.JsonParser;
import tools.jackson.core.JsonToken;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.PropertyNamingStrategies;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ObjectNode;

import seckill.sale.NewVoucher;

/** A JSON object as a record: each field once, of its type, and no other. */
final class JsonFields {
    private static final JsonMapper JSON = JsonMapper.builder()
            .propertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
            .build();
    private static final Pattern RFC_3339 = Pattern.compile(
            "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d+)?(Z|[+-]\\d\\d:\\d\\d)");
    private static final int MAX_NAME_CHARS = 64;
    private static final String ASCII_WHITESPACE = " \t\n\f\r";

    /** On a component that may be absent or null. */
    @Retention(RetentionPolicy.RUNTIME)
    @interface MayBeAbsent {}

    private JsonFields() {}

    /** The record that the text describes, or a refusal that names the field. */
    static <T> T parse(byte[] text, Class<T> type) {
        Map<String, RecordComponent> known = Arrays.stream(type.getRecordComponents()).collect(
                Collectors.toMap(it -> snakeCase(it.getName()), it -> it, (a, b) -> a,
                        LinkedHashMap::new));
        ObjectNode object = read(text, known);
        known.forEach((name, component) -> {
            JsonNode value = object.get(name);
            boolean isOptional = component.isAnnotationPresent(MayBeAbsent.class);
            if (value == null && !isOptional) {
                throw invalid(name, "is missing");
            }
            if (value != null && !(value.isNull() ? isOptional : fits(value, component))) {
                throw invalid(name, NewVoucher.mustBe(name));
            }
        });
        try {
            return JSON.treeToValue(object, type);
        } catch (JacksonException error) {
            throw invalid("body", "has the wrong type");
        }
    }

    private static ObjectNode read(byte[] text, Map<String, RecordComponent> known) {
        if (!startsLikeAnObject(text)) {
            throw invalid("body", "must be a JSON object");
        }
        if (looksLikeUtf16Or32(text)) {
            throw invalid("body", "is not valid JSON");
        }
        ObjectNode object = JSON.createObjectNode();
        try (JsonParser parser = JSON.createParser(text)) {
            parser.nextToken();
            for (String name = parser.nextName(); name != null; name = parser.nextName()) {
                if (!known.containsKey(name)) {
                    throw unknown(name, known);
                }
                if (object.has(name)) {
                    throw invalid(name, "must be given once");
                }
                parser.nextToken();
                object.set(name, parser.<JsonNode>readValueAsTree());
            }
            if (parser.currentToken() == JsonToken.END_OBJECT && parser.nextToken() == null) {
                return object;
            }
        } catch (JacksonException error) {
            // Below.
        }
        throw invalid("body", "is not valid JSON");
    }

    private static boolean startsLikeAnObject(byte[] text) {
        int at = 0;
        while (at < text.length && ASCII_WHITESPACE.indexOf(text[at]) >= 0) {
            at++;
        }
        return at < text.length && text[at] == '{';
    }

    /** By which bytes Jackson guesses another encoding; bodies are in UTF-8. */
    private static boolean looksLikeUtf16Or32(byte[] text) {
        return IntStream.range(0, Math.min(4, text.length)).anyMatch(at -> text[at] == 0);
    }

    private static Problem unknown(String name, Map<String, RecordComponent> known) {
        String allowed = known.isEmpty()
                ? "no fields are allowed"
                : "allowed: " + String.join(", ", known.keySet());
        String shown = name.codePoints().limit(MAX_NAME_CHARS)
                .collect(StringBuilder::new, StringBuilder::appendCodePoint, StringBuilder::append)
                .toString();
        return invalid(shown, "unknown field; " + allowed);
    }

    private static boolean fits(JsonNode value, RecordComponent component) {
        Class<?> type = component.getType();
        if (type == Long.class) {
            return value.isIntegralNumber() && value.canConvertToLong();
        }
        if (type == Integer.class) {
            return value.isIntegralNumber() && value.canConvertToInt();
        }
        if (!value.isString()) {
            return false;
        }
        return type != OffsetDateTime.class || isMoment(value.stringValue());
    }

    private static boolean isMoment(String text) {
        if (!RFC_3339.matcher(text).matches()) {
            return false;
        }
        try {
            OffsetDateTime.parse(text);
            return true;
        } catch (DateTimeException error) {
            return false;
        }
    }

    private static String snakeCase(String name) {
        return name.replaceAll("([A-Z])", "_$1").toLowerCase(Locale.ROOT);
    }

    private static Problem invalid(String field, String limit) {
        return Problem.invalid("invalid_body", field, limit);
    }
}
