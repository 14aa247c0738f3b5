package seckill.web;

import java.util.regex.Pattern;

/** The id in a path: 1 to 19 digits. As a {@code long}, Spring would read 0x1F, +5 and zero. */
public record VoucherId(long value) {
    private static final Pattern DIGITS = Pattern.compile("[0-9]{1,19}");

    /** Spring finds this method by its name; what it throws becomes the problem invalid_id. */
    public static VoucherId valueOf(String text) {
        long id = DIGITS.matcher(text).matches() ? Long.parseLong(text) : 0;
        if (id == 0) {
            throw new NumberFormatException(text);
        }
        return new VoucherId(id);
    }
}
