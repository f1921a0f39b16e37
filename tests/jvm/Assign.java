// Kafka's own assignors, asked line by line on stdin; tests/jvm/test_assignors.py has the format.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.TopicPartition;

public class Assign {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", -1);
            Map<String, Integer> counts = new HashMap<>();
            for (String topic : split(parts[1], ",")) {
                String[] pair = topic.split("=");
                counts.put(pair[0], Integer.parseInt(pair[1]));
            }
            Map<String, Subscription> members = new HashMap<>();
            for (String member : split(parts[2], ";")) {
                String[] fields = member.split("\\|", -1);
                List<TopicPartition> owned = new ArrayList<>();
                for (String each : split(fields[3], ",")) {
                    String[] pair = each.split("=");
                    owned.add(new TopicPartition(pair[0], Integer.parseInt(pair[1])));
                }
                Subscription subscription =
                    new Subscription(split(fields[2], ","), null, owned, 1, Optional.empty());
                if (!fields[1].isEmpty()) {
                    subscription.setGroupInstanceId(Optional.of(fields[1]));
                }
                members.put(fields[0], subscription);
            }
            StringBuilder told = new StringBuilder();
            new TreeMap<>(assignor(parts[0]).assign(counts, members)).forEach((member, partitions) -> {
                told.append(told.length() == 0 ? "" : ";").append(member).append("|");
                List<String> names = new ArrayList<>();
                partitions.forEach(each -> names.add(each.topic() + "=" + each.partition()));
                told.append(String.join(",", names));
            });
            System.out.println(told);
        }
    }

    private static AbstractPartitionAssignor assignor(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }

    private static List<String> split(String text, String by) {
        return text.isEmpty() ? List.of() : List.of(text.split(by));
    }
}
