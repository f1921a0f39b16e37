import java.util.List;
import java.util.StringJoiner;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownServerException;
import org.apache.kafka.common.protocol.Errors;

/** A client's journal on stdout: the lines of tests/reliability/journal.py, on the same clock as Python's. */
final class Journal {
    private final String process;

    Journal(String process) {
        this.process = process;
    }

    /** CLOCK_MONOTONIC, as Python's monotonic_ns. */
    static long now() {
        return System.nanoTime();
    }

    void send(TopicPartition place, String value) {
        tell("send", "place", json(place), "value", json(value), "at", "" + now(), "transaction", "null");
    }

    /** The offset is null where it was not told. */
    void sent(String value, String outcome, Long offset) {
        tell("sent", "value", json(value), "outcome", json(outcome), "offset", "" + offset, "at", "" + now());
    }

    void poll(TopicPartition place, int seat, List<ConsumerRecord<byte[], byte[]>> records, long invoked) {
        StringJoiner seen = new StringJoiner(",", "[", "]");
        records.forEach(each -> seen.add("[" + each.offset() + "," + json(Values.from(each.value())) + "]"));
        tell("poll", "place", json(place), "seat", "" + seat, "records", seen.toString(),
            "invoked", "" + invoked, "at", "" + now(), "transaction", "null");
    }

    void told(TopicPartition place, String what, long offset, long invoked) {
        tell("told", "place", json(place), "what", json(what), "offset", "" + offset,
            "invoked", "" + invoked, "at", "" + now());
    }

    void owned(String group, int generation, TopicPartition place) {
        tell("owned", "group", json(group), "generation", "" + generation, "member", json(process),
            "place", json(place));
    }

    /** The code is null for an error that is the client's own. */
    void met(String doing, Exception error) {
        Errors found = Errors.forException(error);
        boolean isKafkas = found != Errors.UNKNOWN_SERVER_ERROR || error instanceof UnknownServerException;
        tell("met", "doing", json(doing), "error", json(error.getClass().getSimpleName()),
            "code", isKafkas ? "" + found.code() : "null");
    }

    /** Facts are names, each with its value in JSON. */
    private synchronized void tell(String did, String... facts) {
        StringBuilder line = new StringBuilder("{\"did\":" + json(did) + ",\"process\":" + json(process));
        for (int at = 0; at < facts.length; at += 2) {
            line.append(',').append(json(facts[at])).append(':').append(facts[at + 1]);
        }
        System.out.print(line.append("}\n"));
        System.out.flush();
    }

    private static String json(TopicPartition place) {
        return "[" + json(place.topic()) + "," + place.partition() + "]";
    }

    private static String json(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        text.chars().forEach(each -> {
            boolean isPlain = each >= ' ' && each <= '~' && each != '"' && each != '\\';
            quoted.append(isPlain ? String.valueOf((char) each) : String.format("\\u%04x", each));
        });
        return quoted.append('"').toString();
    }
}
