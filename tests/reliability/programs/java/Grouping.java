import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Kafka's own consumer as a member of a group: BOOTSTRAP TOPIC PARTITIONS GROUP.MEMBER.STRATEGY.
 *
 * It tells what `grouping` tells. The strategy is an assignor, or `consumer` for the protocol of KIP-848, in
 * which an epoch is what a generation is.
 */
final class Grouping implements ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final Duration ASK = Duration.ofSeconds(1);
    private static final Map<String, Class<?>> ASSIGNORS = Map.of(
        "range", RangeAssignor.class, "roundrobin", RoundRobinAssignor.class,
        "sticky", StickyAssignor.class, "cooperative-sticky", CooperativeStickyAssignor.class
    );

    private static final CloseOptions SOON = CloseOptions.timeout(Duration.ofSeconds(5));

    private final String bootstrap;
    private final String topic;
    private final String group;
    private final String strategy;
    private final Journal journal;
    private KafkaConsumer<byte[], byte[]> consumer;
    private int seat;

    private Grouping(String bootstrap, String topic, String name) {
        String[] parts = name.split("\\.");
        this.bootstrap = bootstrap;
        this.topic = topic;
        group = parts[0];
        strategy = parts[2];
        journal = new Journal(name);
        join();
    }

    public static void main(String[] arguments) {
        Grouping member = new Grouping(arguments[0], arguments[1], arguments[3]);
        Stopping stop = new Stopping();
        while (!stop.isSet()) {
            member.step();
        }
        member.consumer.close();
    }

    private void join() {
        consumer = new KafkaConsumer<>(
            settings(bootstrap, group, strategy), new ByteArrayDeserializer(), new ByteArrayDeserializer()
        );
        consumer.subscribe(List.of(topic), this);
    }

    private static Map<String, Object> settings(String bootstrap, String group, String strategy) {
        Map<String, Object> settings = Settings.consumer(bootstrap, group, "earliest");
        settings.put("metadata.max.age.ms", 1_000);
        settings.put("max.poll.interval.ms", 3_000);
        if (strategy.equals("consumer")) {
            settings.put("group.protocol", "consumer");
        } else {
            settings.put("partition.assignment.strategy", List.of(ASSIGNORS.get(strategy)));
            settings.put("session.timeout.ms", 2_000);
            settings.put("heartbeat.interval.ms", 300);
        }
        return settings;
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
        // Nothing is kept back: every poll is committed before the next.
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
        seat++;
        int generation = consumer.groupMetadata().generationId();
        assigned.forEach(each -> journal.owned(group, generation, each));
        if (assigned.isEmpty()) {
            return;
        }
        long invoked = Journal.now();
        try {
            consumer.committed(Set.copyOf(assigned), ASK).forEach((place, found) -> {
                if (found != null) {
                    journal.told(place, group, found.offset(), invoked);
                }
            });
        } catch (KafkaException error) { // nobody to ask just now
            journal.met("committed offsets", error);
        }
    }

    private void step() {
        long invoked = Journal.now();
        Map<TopicPartition, OffsetAndMetadata> read = new HashMap<>();
        try {
            ConsumerRecords<byte[], byte[]> polled = consumer.poll(POLL);
            for (TopicPartition place : polled.partitions()) {
                List<ConsumerRecord<byte[], byte[]>> records = polled.records(place);
                journal.poll(place, seat, records, invoked);
                read.put(place, new OffsetAndMetadata(records.get(records.size() - 1).offset() + 1));
            }
        } catch (KafkaException error) { // nobody to ask just now
            journal.met("poll", error);
        } catch (IllegalStateException error) {
            beginAnew(error);
            return;
        }
        if (!read.isEmpty()) {
            commit(read);
        }
    }

    /**
     * In the new protocol another thread of the client takes partitions away, also from under a poll that is
     * reading them: it raises "No current assignment for partition" then (4.2; KAFKA-16227 and KAFKA-20106 mend
     * other cases of it), and what it had read of others is lost. A new consumer reads all of that again.
     */
    private void beginAnew(IllegalStateException error) {
        if (!strategy.equals("consumer")) {
            throw error;
        }
        journal.met("poll", error);
        try {
            consumer.close(SOON);
        } catch (KafkaException refusal) {
            journal.met("close", refusal);
        }
        join();
    }

    private void commit(Map<TopicPartition, OffsetAndMetadata> positions) {
        long invoked = Journal.now();
        try {
            consumer.commitSync(positions);
        } catch (KafkaException error) { // fenced, no longer its own, or nobody to ask: somebody reads it again
            journal.met("commit", error);
            return;
        }
        positions.forEach((place, position) -> journal.told(place, group, position.offset(), invoked));
    }
}
