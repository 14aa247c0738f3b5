package interop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** A number in a file that nothing guards: 20 digits, written in one piece. */
final class Counter {
    private static final int DIGITS = 20;
    private final FileChannel file;

    Counter(String path) throws IOException {
        file = FileChannel.open(
            Path.of(path), StandardOpenOption.READ, StandardOpenOption.WRITE);
    }

    long read() throws IOException {
        var digits = ByteBuffer.allocate(DIGITS);
        int length = file.read(digits, 0);
        if (length <= 0) {
            return 0;
        }
        return Long.parseLong(new String(digits.array(), 0, length, StandardCharsets.US_ASCII));
    }

    void write(long number) throws IOException {
        byte[] digits = String.format("%020d", number).getBytes(StandardCharsets.US_ASCII);
        file.write(ByteBuffer.wrap(digits), 0);
    }
}
