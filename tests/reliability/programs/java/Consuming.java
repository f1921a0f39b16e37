import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.InvalidOffsetException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Kafka's own consumer with a fixed assignment, from the start: BOOTSTRAP TOPIC PARTITIONS NAME.
 *
 * After every few polls it asks for the latest offset of each partition. An offset out of range is what it may
 * never meet: it exits with 1 then.
 */
final class Consuming {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final Duration ASK = Duration.ofSeconds(1);
    private static final int POLLS_PER_QUESTION = 3;

    public static void main(String[] arguments) {
        List<TopicPartition> places = new ArrayList<>();
        for (int at = 0; at < Integer.parseInt(arguments[2]); at++) {
            places.add(new TopicPartition(arguments[1], at));
        }
        Journal journal = new Journal(arguments[3]);
        Stopping stop = new Stopping();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
            Settings.consumer(arguments[0], arguments[3], "none"),
            new ByteArrayDeserializer(), new ByteArrayDeserializer()
        )) {
            consumer.assign(places);
            places.forEach(each -> consumer.seek(each, 0));
            for (int polls = 1; !stop.isSet(); polls++) {
                poll(consumer, journal);
                if (polls % POLLS_PER_QUESTION == 0) {
                    askLatest(consumer, journal, places);
                }
            }
        }
    }

    private static void poll(KafkaConsumer<byte[], byte[]> consumer, Journal journal) {
        long invoked = Journal.now();
        try {
            ConsumerRecords<byte[], byte[]> polled = consumer.poll(POLL);
            polled.partitions().forEach(each -> journal.poll(each, 1, polled.records(each), invoked));
        } catch (InvalidOffsetException error) {
            System.err.println(error);
            System.exit(1);
        } catch (KafkaException error) {
            journal.met("poll", error);
        }
    }

    private static void askLatest(
        KafkaConsumer<byte[], byte[]> consumer, Journal journal, List<TopicPartition> places
    ) {
        long invoked = Journal.now();
        try {
            consumer.endOffsets(places, ASK)
                .forEach((place, end) -> journal.told(place, "latest", end, invoked));
        } catch (KafkaException error) { // nobody to ask just now
            journal.met("latest offset", error);
        }
    }
}
