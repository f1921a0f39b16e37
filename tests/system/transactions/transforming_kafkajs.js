// transforming.py for KafkaJS: node transforming_kafkajs.js BOOTSTRAP INPUT OUTPUT GROUP TRANSACTIONAL_ID COUNT PER
//
// KafkaJS has a consumer only for groups; the input is complete before this begins, and is read by KafkaJS' own
// cluster and broker classes.  What cannot be tried again ends the program with exit code 3: who starts it anew
// goes on from what was committed.

const { Kafka, logLevel } = require('kafkajs')
const Cluster = require('kafkajs/src/cluster')
const Batch = require('kafkajs/src/consumer/batch')
const { createLogger } = require('kafkajs/src/loggers')
const LoggerConsole = require('kafkajs/src/loggers/console')
const defaultSocketFactory = require('kafkajs/src/network/socketFactory')

const [bootstrap, source, target, group, transactionalId, countText, perText] = process.argv.slice(2)
const [COUNT, PER] = [Number(countText), Number(perText)]
const ENDED = 3
const READ_COMMITTED = 1
const FETCH_BYTES_MAX = 1024 * 1024
const REQUEST_MS = 5000
const TRANSACTION_MS = 10000
const SUFFIXES = [':a', ':b']
const brokers = bootstrap.split(',')
const kafka = new Kafka({
  brokers,
  logLevel: logLevel.NOTHING,
  requestTimeout: REQUEST_MS,
  retry: { retries: 10, initialRetryTime: 50, maxRetryTime: 1000 },
})

const readAll = async () => {
  const cluster = new Cluster({
    brokers,
    clientId: 'kafkajs',
    connectionTimeout: 1000,
    requestTimeout: REQUEST_MS,
    enforceRequestTimeout: true,
    logger: createLogger({ level: logLevel.NOTHING, logCreator: LoggerConsole }),
    socketFactory: defaultSocketFactory(),
    metadataMaxAge: 300000,
    isolationLevel: READ_COMMITTED,
  })
  await cluster.connect()
  try {
    await cluster.addTargetTopic(source)
    const [[nodeId]] = [Object.keys(cluster.findLeaderForPartitions(source, [0]))]
    const broker = await cluster.findBroker({ nodeId })
    const values = []
    while (values.length < COUNT) {
      const fetchOffset = String(values.length)
      const { responses } = await broker.fetch({
        isolationLevel: READ_COMMITTED,
        maxWaitTime: 500,
        minBytes: 1,
        maxBytes: FETCH_BYTES_MAX,
        topics: [{ topic: source, partitions: [{ partition: 0, fetchOffset, maxBytes: FETCH_BYTES_MAX }] }],
      })
      const batch = new Batch(source, fetchOffset, responses[0].partitions[0])
      for (const message of batch.messages) {
        if (Number(message.offset) === values.length) values.push(message.value.toString('ascii'))
      }
    }
    return values
  } finally {
    await cluster.disconnect()
  }
}

const committed = async () => {
  const admin = kafka.admin()
  await admin.connect()
  try {
    const [found] = await admin.fetchOffsets({ groupId: group, topics: [source] })
    const { offset } = found.partitions.find(({ partition }) => partition === 0)
    return Math.max(Number(offset), 0)
  } finally {
    await admin.disconnect()
  }
}

const withSuffix = (value, suffix) => {
  const end = value.indexOf(' ')
  return value.slice(0, end) + suffix + value.slice(end)
}

// One send for each partition: of a send to several, KafkaJS 2.2 notes which brokers have answered, not which
// partitions, and sends a partition once more, with new sequences, if its leader changes before all have.
const transform = async (transaction, values, position) => {
  for (const [partition, suffix] of SUFFIXES.entries()) {
    const messages = values.map(value => ({ partition, value: withSuffix(value, suffix) }))
    await transaction.send({ topic: target, messages })
  }
  const partitions = [{ partition: 0, offset: String(position + values.length) }]
  await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic: source, partitions }] })
  await transaction.commit()
}

const main = async () => {
  const values = await readAll()
  const producer = kafka.producer({
    idempotent: true,
    maxInFlightRequests: 1,
    transactionalId,
    transactionTimeout: TRANSACTION_MS,
  })
  await producer.connect()
  // With the first transaction it takes the id over, which ends what an earlier instance left open.
  let transaction = await producer.transaction()
  let position = await committed()
  while (position < COUNT) {
    const next = values.slice(position, position + PER)
    await transform(transaction, next, position)
    position += next.length
    process.stdout.write(`${position}\n`)
    if (position < COUNT) transaction = await producer.transaction()
  }
  process.exit(0)
}

main().catch(failed => {
  process.stdout.write(`ended ${failed.name}: ${failed.message}\n`, () => process.exit(ENDED))
})
