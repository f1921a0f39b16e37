// KafkaJS' consumer as a member of a group: BOOTSTRAP TOPIC PARTITIONS GROUP.MEMBER.STRATEGY.
//
// It tells what grouping.py tells, in the lines of journal.py.  KafkaJS says its generation only with a
// heartbeat: what a member owns is told with the first one after it has joined.

const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, topic, , name] = process.argv.slice(2)
const group = name.split('.')[0]
const PADDING = ' ' + '.'.repeat(150)

const now = () => Number(process.hrtime.bigint())
const tell = (did, facts) => process.stdout.write(JSON.stringify({ did, process: name, ...facts }) + '\n')
const valueOf = bytes => {
  const text = bytes.toString('latin1')
  return text.endsWith(PADDING) ? text.slice(0, -PADDING.length) : text
}

const kafka = new Kafka({
  brokers: bootstrap.split(','),
  clientId: name,
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, maxRetryTime: 300, retries: 100 },
})
const consumer = kafka.consumer({
  groupId: group,
  sessionTimeout: 2000,
  rebalanceTimeout: 5000,
  heartbeatInterval: 300,
  metadataMaxAge: 1000,
  maxWaitTimeInMs: 100,
})

let seat = 0
let assigned = null
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  seat += 1
  assigned = payload.memberAssignment[topic] || []
})
consumer.on(consumer.events.HEARTBEAT, ({ payload }) => {
  for (const partition of assigned || []) {
    tell('owned', { group, generation: payload.groupGenerationId, member: name, place: [topic, partition] })
  }
  assigned = null
})

const eachBatch = async ({ batch, isRunning, isStale, heartbeat }) => {
  const invoked = now()
  const records = batch.messages.map(message => [Number(message.offset), valueOf(message.value)])
  if (records.length === 0 || !isRunning() || isStale()) return
  const place = [topic, batch.partition]
  tell('poll', { place, seat, records, invoked, at: now(), transaction: null })
  await heartbeat()
  const offset = records[records.length - 1][0] + 1
  const asked = now()
  await consumer.commitOffsets([{ topic, partition: batch.partition, offset: String(offset) }])
  tell('told', { place, what: group, offset, invoked: asked, at: now() })
}

const main = async () => {
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({ autoCommit: false, eachBatchAutoResolve: true, eachBatch })
}

process.stdin.resume()
process.stdin.on('end', async () => {
  await consumer.disconnect()
  process.exit(0)
})
main().catch(error => {
  process.stderr.write(`${error}\n`)
  process.exit(1)
})
