// KafkaJS as a client program: node client.js BOOTSTRAP.  programs/lines.py says what is asked and answered.
//
// KafkaJS has a consumer only for groups.  By assignment its own cluster and broker classes are used here, which
// do the fetching and decoding for that consumer too.  Its gzip is its own; the other codecs are put in as its
// documentation says.

const readline = require('readline')
const { Kafka, CompressionCodecs, CompressionTypes, ConfigResourceTypes, logLevel } = require('kafkajs')
const Cluster = require('kafkajs/src/cluster')
const Batch = require('kafkajs/src/consumer/batch')
const { createLogger } = require('kafkajs/src/loggers')
const LoggerConsole = require('kafkajs/src/loggers/console')
const defaultSocketFactory = require('kafkajs/src/network/socketFactory')
const SnappyCodec = require('kafkajs-snappy')
const lz4 = require('lz4-napi')
const zstd = require('@bokuweb/zstd-wasm')

const BROKERS = process.argv[2].split(',')
const PATIENCE_MS = 30000
const FETCH_BYTES_MAX = 8 * 1024 * 1024
const NO_OFFSET = '-1'
const TOPIC_ALREADY_EXISTS = 36 // what KafkaJS makes `false` of
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => lz4.compressFrame(encoder.buffer),
  decompress: async buffer => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async buffer => Buffer.from(zstd.decompress(buffer)),
})

// Its default is 5; with 10 it outlasts the session of a broker that was killed.
const kafka = new Kafka({ brokers: BROKERS, logLevel: logLevel.NOTHING, retry: { retries: 10 } })

const toBytes = text => (text === null ? null : Buffer.from(text, 'base64'))
const toText = bytes => (bytes === null || bytes === undefined ? null : Buffer.from(bytes).toString('base64'))

const headersOf = record => {
  const headers = {}
  for (const [name, value] of record.headers) headers[name] = [...(headers[name] || []), toBytes(value)]
  return headers
}

const asRecord = message => ({
  offset: Number(message.offset),
  timestamp: Number(message.timestamp),
  key: toText(message.key),
  value: toText(message.value),
  headers: Object.entries(message.headers || {}).flatMap(([name, values]) =>
    (Array.isArray(values) ? values : [values]).map(value => [name, toText(value)])
  ),
})

const withProducer = async (options, work) => {
  const producer = kafka.producer(options)
  await producer.connect()
  try {
    return await work(producer)
  } finally {
    await producer.disconnect()
  }
}

const withAdmin = async work => {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await work(admin)
  } finally {
    await admin.disconnect()
  }
}

const withCluster = async (topic, work) => {
  const cluster = new Cluster({
    brokers: BROKERS,
    clientId: 'kafkajs',
    connectionTimeout: 1000,
    requestTimeout: PATIENCE_MS,
    enforceRequestTimeout: true,
    logger: createLogger({ level: logLevel.NOTHING, logCreator: LoggerConsole }),
    socketFactory: defaultSocketFactory(),
    metadataMaxAge: 300000,
    isolationLevel: 1,
  })
  await cluster.connect()
  try {
    await cluster.addTargetTopic(topic)
    return await work(cluster)
  } finally {
    await cluster.disconnect()
  }
}

const fetchFrom = async (cluster, { topic, partition }, start, count) => {
  const [[leader]] = [Object.keys(cluster.findLeaderForPartitions(topic, [partition]))]
  const broker = await cluster.findBroker({ nodeId: leader })
  const deadline = Date.now() + PATIENCE_MS
  const messages = []
  let offset = start
  while (messages.length < count) {
    if (Date.now() > deadline) throw new Error('nothing came')
    const place = { partition, fetchOffset: String(offset), maxBytes: FETCH_BYTES_MAX }
    const { responses } = await broker.fetch({
      isolationLevel: 1,
      maxWaitTime: 500,
      minBytes: 1,
      maxBytes: FETCH_BYTES_MAX,
      topics: [{ topic, partitions: [place] }],
    })
    const batch = new Batch(topic, String(offset), responses[0].partitions[0])
    messages.push(...batch.messages)
    if (batch.messages.length > 0) offset = Number(batch.messages[batch.messages.length - 1].offset) + 1
  }
  return messages.slice(0, count).map(asRecord)
}

const operations = {
  produce: request =>
    withProducer({ idempotent: request.idempotent, maxInFlightRequests: 1 }, async producer => {
      const answers = await producer.send({
        topic: request.topic,
        acks: { all: -1, 1: 1, 0: 0 }[request.acks],
        compression: CODECS[request.codec],
        messages: request.records.map(record => ({
          partition: request.partition,
          key: toBytes(record.key),
          value: toBytes(record.value),
          headers: headersOf(record),
          ...(record.timestamp === null ? {} : { timestamp: String(record.timestamp) }),
        })),
      })
      if (request.acks === '0') return { offsets: request.records.map(() => null) }
      const base = Number(answers[0].baseOffset)
      return { offsets: request.records.map((_, index) => base + index) }
    }),

  transact: request =>
    withProducer({ idempotent: true, maxInFlightRequests: 1, transactionalId: request.id }, async producer => {
      for (const each of request.transactions) {
        const transaction = await producer.transaction()
        const messages = each.values.map(value => ({ partition: request.partition, value: toBytes(value) }))
        if (messages.length) await transaction.send({ topic: request.topic, messages })
        if (request.group !== null) {
          const partitions = [{ partition: request.partition, offset: String(each.offset) }]
          await transaction.sendOffsets({
            consumerGroupId: request.group,
            topics: [{ topic: request.topic, partitions }],
          })
        }
        await (each.commit ? transaction.commit() : transaction.abort())
      }
      return {}
    }),

  committed: request =>
    withCluster(request.topic, async cluster => ({
      records: await fetchFrom(cluster, request, 0, request.count),
    })),

  consume: request =>
    withCluster(request.topic, async cluster => ({
      records: await fetchFrom(cluster, request, request.from, request.count),
    })),

  seek: request =>
    withCluster(request.topic, async cluster => {
      const records = []
      for (const offset of request.offsets) records.push(...(await fetchFrom(cluster, request, offset, 1)))
      return { records }
    }),

  times: request =>
    withAdmin(async admin => {
      const offsets = []
      for (const timestamp of request.timestamps) {
        const found = await admin.fetchTopicOffsetsByTimestamp(request.topic, timestamp)
        const { offset } = found.find(({ partition }) => partition === request.partition)
        offsets.push(offset === NO_OFFSET ? null : Number(offset))
      }
      return { offsets }
    }),

  bounds: request =>
    withAdmin(async admin => {
      const found = await admin.fetchTopicOffsets(request.topic)
      const { low, high } = found.find(({ partition }) => partition === request.partition)
      return { start: Number(low), end: Number(high) }
    }),

  create: request =>
    withAdmin(async admin => {
      const isNew = await admin.createTopics({
        waitForLeaders: true,
        topics: [
          {
            topic: request.topic,
            numPartitions: request.partitions,
            replicationFactor: 1,
            configEntries: Object.entries(request.configs).map(([name, value]) => ({ name, value })),
          },
        ],
      })
      if (!isNew) throw Object.assign(new Error('the topic exists'), { code: TOPIC_ALREADY_EXISTS })
      return {}
    }),

  delete: request =>
    withAdmin(async admin => {
      await admin.deleteTopics({ topics: [request.topic] })
      return {}
    }),

  list: () => withAdmin(async admin => ({ topics: (await admin.listTopics()).sort() })),

  describe: request =>
    withAdmin(async admin => {
      const { topics } = await admin.fetchTopicMetadata({ topics: [request.topic] })
      return { partitions: topics[0].partitions.length }
    }),

  grow: request =>
    withAdmin(async admin => {
      await admin.createPartitions({
        topicPartitions: [{ topic: request.topic, count: request.partitions }],
      })
      return {}
    }),

  set_config: request =>
    withAdmin(async admin => {
      const configEntries = [{ name: request.name, value: request.value }]
      await admin.alterConfigs({
        resources: [{ type: ConfigResourceTypes.TOPIC, name: request.topic, configEntries }],
      })
      return {}
    }),

  config: request =>
    withAdmin(async admin => {
      const { resources } = await admin.describeConfigs({
        resources: [{ type: ConfigResourceTypes.TOPIC, name: request.topic }],
      })
      const entry = resources[0].configEntries.find(({ configName }) => configName === request.name)
      return { value: entry.configValue }
    }),

  brokers: () =>
    withAdmin(async admin => ({
      ids: (await admin.describeCluster()).brokers.map(({ nodeId }) => nodeId).sort(),
    })),

  trial: request =>
    withAdmin(async admin => {
      await admin.createTopics({ validateOnly: true, waitForLeaders: false, topics: [{ topic: request.topic }] })
      return {}
    }),

  trim: request =>
    withAdmin(async admin => {
      const partitions = [{ partition: request.partition, offset: String(request.before) }]
      await admin.fetchTopicMetadata({ topics: [request.topic] })
      await admin.deleteTopicRecords({ topic: request.topic, partitions })
      const found = await admin.fetchTopicOffsets(request.topic)
      return { start: Number(found.find(({ partition }) => partition === request.partition).low) }
    }),

  unset_config: request =>
    withAdmin(async admin => {
      const resource = { type: ConfigResourceTypes.TOPIC, name: request.topic, configEntries: [] }
      await admin.alterConfigs({ resources: [resource] })
      return {}
    }),

  broker_config: request =>
    withAdmin(async admin => {
      const { resources } = await admin.describeConfigs({
        resources: [{ type: ConfigResourceTypes.BROKER, name: String(request.id) }],
      })
      const entry = resources[0].configEntries.find(({ configName }) => configName === request.name)
      return { value: entry.configValue }
    }),

  set_broker_config: request =>
    withAdmin(async admin => {
      const configEntries = [{ name: request.name, value: request.value }]
      await admin.alterConfigs({
        resources: [{ type: ConfigResourceTypes.BROKER, name: String(request.id), configEntries }],
      })
      return {}
    }),

  offsets: request => operations.bounds(request),
}

const answerTo = async line => {
  const request = JSON.parse(line)
  try {
    return { ok: await operations[request.op](request) }
  } catch (failed) {
    const first = failed.errors ? failed.errors[0] : failed
    const { code = null } = [failed, first, first.cause || {}, failed.cause || {}].find(error => 'code' in error) || {}
    return { error: { code, text: `${failed.name}: ${first.message}` } }
  }
}

const main = async () => {
  await zstd.init()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await answerTo(line)) + '\n')
  }
}

main()
