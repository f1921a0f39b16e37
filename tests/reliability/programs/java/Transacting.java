import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.StringJoiner;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApplicationRecoverableException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own transactional producer and consumer, asked line by line on stdin: CALL_MS POLL_MS RECORDS_MAX.
 *
 * A line is a verb and its arguments, with tabs between; programs/transactions/java_client.py has them. The
 * answer to each is `ok` and what was asked for, or `refused`, whether the producer is fenced, and the error.
 * When stdin has ended so does the program, at once and whatever is open, since whoever asked was killed.
 */
final class Transacting {
    private static final int DELIVERY_MS = 20_000;
    private static final long RETRIES_NS = 60_000_000_000L;

    private final long callMs;
    private final Duration poll;
    private final int recordsMax;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Map<String, KafkaConsumer<byte[], byte[]>> consumers = new HashMap<>();

    private Transacting(String[] arguments) {
        callMs = Long.parseLong(arguments[0]);
        poll = Duration.ofMillis(Long.parseLong(arguments[1]));
        recordsMax = Integer.parseInt(arguments[2]);
    }

    public static void main(String[] arguments) {
        Transacting asked = new Transacting(arguments);
        BlockingQueue<String> lines = new LinkedBlockingQueue<>();
        Thread reader = new Thread(() -> {
            try {
                BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
                for (String line = in.readLine(); line != null; line = in.readLine()) {
                    lines.add(line);
                }
            } catch (IOException error) {
                // Nobody asks any more.
            }
            Runtime.getRuntime().halt(0); // also in the middle of a call
        }, "stdin");
        reader.start();
        try {
            while (true) {
                System.out.print(asked.answer(lines.take().split("\t")) + "\n");
                System.out.flush();
            }
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private String answer(String[] line) {
        try {
            String found = obey(line[0], line[1], line);
            return found.isEmpty() ? "ok" : "ok\t" + found;
        } catch (KafkaException | IllegalStateException error) { // the latter where only another producer may go on
            String text = (error.getClass().getSimpleName() + ": " + error.getMessage()).replaceAll("\\s+", " ");
            return "refused\t" + (isFenced(error) ? "fenced" : "other") + "\t" + text;
        }
    }

    private String obey(String verb, String handle, String[] line) {
        switch (verb) {
            case "produce": produce(handle, line[2], line[3], Integer.parseInt(line[4])); return "";
            case "begin": producers.get(handle).beginTransaction(); return "";
            case "send": send(producers.get(handle), line); return "";
            case "offset": sendOffset(producers.get(handle), line); return "";
            case "commit": insist(producers.get(handle)::commitTransaction); return "";
            case "abort": insist(producers.get(handle)::abortTransaction); return "";
            case "leave": leave(handle); return "";
            case "consume": consume(handle, line[2], line[3], line[4]); return "";
            case "seek": seek(consumers.get(handle), line); return "";
            case "poll": return polled(consumers.get(handle));
            case "committed": return "" + committed(consumers.get(handle), line);
            default: throw new IllegalArgumentException(verb);
        }
    }

    private void produce(String handle, String bootstrap, String transactionalId, int timeoutMs) {
        Map<String, Object> settings = Settings.common(bootstrap);
        settings.put("transactional.id", transactionalId);
        settings.put("transaction.timeout.ms", timeoutMs);
        settings.put("linger.ms", 2);
        settings.put("max.block.ms", callMs);
        settings.put("delivery.timeout.ms", DELIVERY_MS);
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producers.put(handle, producer);
        try {
            insist(producer::initTransactions);
        } catch (KafkaException error) {
            leave(handle);
            throw error;
        }
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, String[] line) {
        byte[] value = Base64.getDecoder().decode(line[4]);
        producer.send(new ProducerRecord<>(line[2], Integer.parseInt(line[3]), null, value));
    }

    private void sendOffset(KafkaProducer<byte[], byte[]> producer, String[] line) {
        TopicPartition place = new TopicPartition(line[3], Integer.parseInt(line[4]));
        OffsetAndMetadata position = new OffsetAndMetadata(Long.parseLong(line[5]));
        producer.sendOffsetsToTransaction(Map.of(place, position), metadata(line[2]));
    }

    /** Who asks has a consumer of the group, which is no member: it was assigned what it reads. */
    private ConsumerGroupMetadata metadata(String group) {
        return consumers.values().stream().map(KafkaConsumer::groupMetadata)
            .filter(each -> each.groupId().equals(group)).findAny().orElseThrow();
    }

    /** Goes as it is, whatever is open. */
    private void leave(String handle) {
        producers.remove(handle).close(Duration.ZERO);
    }

    private void consume(String handle, String bootstrap, String group, String isolation) {
        Map<String, Object> settings = Settings.consumer(bootstrap, group, "none");
        settings.put("isolation.level", isolation);
        settings.put("max.poll.records", recordsMax);
        consumers.put(
            handle, new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())
        );
    }

    private static void seek(KafkaConsumer<byte[], byte[]> consumer, String[] line) {
        TopicPartition place = new TopicPartition(line[2], Integer.parseInt(line[3]));
        consumer.assign(List.of(place));
        consumer.seek(place, Long.parseLong(line[4]));
    }

    private String polled(KafkaConsumer<byte[], byte[]> consumer) {
        StringJoiner found = new StringJoiner("\t");
        for (ConsumerRecord<byte[], byte[]> each : consumer.poll(poll)) {
            found.add(each.offset() + ":" + Base64.getEncoder().encodeToString(each.value()));
        }
        return found.toString();
    }

    private long committed(KafkaConsumer<byte[], byte[]> consumer, String[] line) {
        TopicPartition place = new TopicPartition(line[2], Integer.parseInt(line[3]));
        OffsetAndMetadata found = consumer.committed(Set.of(place), Duration.ofMillis(callMs)).get(place);
        return found == null ? 0 : found.offset();
    }

    /** A call that timed out is to be made again, and no other; so its manual has it. */
    private static void insist(Runnable call) {
        long deadline = System.nanoTime() + RETRIES_NS;
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                if (System.nanoTime() > deadline) {
                    throw error;
                }
            }
        }
    }

    private static boolean isFenced(Throwable error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (each instanceof ApplicationRecoverableException) {
                return true;
            }
        }
        return false;
    }
}
