"""KafkaJS' consumer as a member of a group: BOOTSTRAP TOPIC PARTITIONS GROUP.MEMBER.STRATEGY.

Only hands over to Node.js; the program is grouping_kafkajs.js.  KafkaJS is that of the compatibility tests.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
MODULES = HERE.parents[1] / "compat" / "broker" / "kafkajs" / "node_modules"


def main() -> None:
    os.environ["NODE_PATH"] = str(MODULES)
    os.execvp("node", ["node", str(HERE / "grouping_kafkajs.js"), *sys.argv[1:]])


if __name__ == "__main__":
    main()
