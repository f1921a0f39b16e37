import java.nio.charset.StandardCharsets;

/** The values of tests/reliability/programs/values.py: NAME-NUMBER, a space, and dots. */
final class Values {
    private static final String PADDING = " " + ".".repeat(150);

    static byte[] bytes(String value) {
        return (value + PADDING).getBytes(StandardCharsets.US_ASCII);
    }

    /** Garbage comes back as something that nobody sent. */
    static String from(byte[] content) {
        String text = content == null ? "null" : new String(content, StandardCharsets.ISO_8859_1);
        boolean isOurs = text.endsWith(PADDING) && text.indexOf(' ') == text.length() - PADDING.length();
        return isOurs ? text.substring(0, text.length() - PADDING.length()) : "garbage: " + text;
    }
}
