// A day in the life of the generated client: every answer is read by its type.
import assert from 'node:assert/strict'
import { client } from './generated/client.gen.js'
import * as keyfold from './generated/sdk.gen.js'
import type { Merge, Problem } from './generated/types.gen.js'

const [url, token] = process.argv.slice(2)
assert(url && token)
const text = { prefer: 'integers=text' }
const large = (2n ** 53n + 1n).toString() // which no number of JavaScript is
const database = 'typescript'
const path = { database, table: 'orders' }

function told<T>(answer: { data?: T; error?: unknown }): T {
  assert(answer.data !== undefined, JSON.stringify(answer.error))
  return answer.data
}

client.setConfig({ baseUrl: url })
assert.equal((await keyfold.listDatabases()).error?.status, 401)
client.setConfig({ baseUrl: url, auth: () => token })
const made = told(await keyfold.createToken({ body: { name: database, role: 'admin', on: ['*'] } }))
client.setConfig({ baseUrl: url, auth: () => made.token })

// create, from JSON and from SQL
told(await keyfold.createDatabase({ body: { name: database } }))
const plain = told(
  await keyfold.createTable({
    path: { database },
    body: {
      identifier: { database, object: 'plain' },
      schema: { fields: [{ name: 'id', type: 'BIGINT NOT NULL' }], primaryKeys: ['id'] },
    },
  }),
)
assert.deepEqual(plain.schema.primaryKeys, ['id'])
const ddl = `CREATE TABLE orders (
  id BIGINT NOT NULL, edited TIMESTAMP(3), status STRING, total BIGINT, PRIMARY KEY (id) NOT ENFORCED
) WITH ('merge-engine' = 'partial-update', 'fields.edited.sequence-group' = 'status',
        'record.absent-columns' = 'unchanged', 'merge.max-staleness' = '1 d')`
const checked = told(await keyfold.validateDdl({ path: { database }, body: { ddl } }))
assert.deepEqual(checked.violations, [])
const declared = told(await keyfold.createTablesFromDdl({ path: { database }, body: { ddl } }))
assert.equal(declared.tables[0]?.name, 'orders')

// upsert
const batch = told(
  await keyfold.postBatch({
    path,
    headers: { 'idempotency-key': 'first' },
    body: {
      records: [
        { id: large, edited: '2026-03-01T10:00:00', status: 'new', total: large },
        { id: '8', edited: '2026-03-01T10:00:00', status: 'new' },
        { _kind: '+I', id: large, edited: '2026-03-01T09:00:00', status: 'late' },
      ],
    },
  }),
)
assert.equal(batch.state, 'staged')
assert.equal(batch.records, 3)
told(await keyfold.patchRow({ path, query: { key: ['8'] }, body: { edited: '2026-03-01T11:00:00', status: 'packed' } }))

// merge
let merge: Merge = told(await keyfold.postMerge({ path }))
while (merge.state === 'pending' || merge.state === 'running') {
  await new Promise((resolve) => setTimeout(resolve, 100))
  merge = told(await keyfold.getMerge({ path: { ...path, merge_id: merge.id } }))
}
assert.equal(merge.state, 'succeeded', String(merge.error))

// get: ids beyond 2^53 go round without loss
const found = await keyfold.getRow({ path, query: { key: [large] }, headers: text })
const row = told(found)
assert.deepEqual(row, { id: large, edited: '2026-03-01T10:00:00', status: 'new', total: large })
told(await keyfold.putRow({ path, query: { key: [String(row.id)] }, body: row }))
const again = told(await keyfold.getRow({ path, query: { key: [large], integers: 'text' } }))
assert.equal(BigInt(String(again.total)), 2n ** 53n + 1n)
const many = told(await keyfold.batchGetRows({ path, headers: text, body: { keys: [{ id: large }, { id: '9' }] } }))
assert.deepEqual(
  many.rows.map((one) => [one.key.id, one.found, one.row?.status ?? null]),
  [[large, true, 'new'], ['9', false, null]],
)

// scan
const scanned = await keyfold.scanRows({ path, query: { filter: ['status.eq.packed'] }, headers: text, parseAs: 'text' })
const lines = String(told(scanned)).trim().split('\n')
assert.deepEqual(lines.map((line) => JSON.parse(line).id), ['8'])

// 304
const etag = found.response?.headers.get('etag')
assert(etag)
const same = await keyfold.getRow({ path, query: { key: [large] }, headers: { ...text, 'if-none-match': etag } })
assert.equal(same.response?.status, 304)

// a typed 404
const missing = await keyfold.getRow({ path, query: { key: ['404'] } })
const problem: Problem | undefined = missing.error
assert.equal(problem?.errorCode, 'row_not_found')
assert.equal(problem.status, 404)

// a bad batch, with each of its faults
const bad = await keyfold.postBatch({ path, body: { records: [{ id: 'x' }, { id: '1', nope: 1 }] } })
const faults = (bad.error as Problem).errors
assert.deepEqual(faults.map((one) => [one.pointer, one.code]), [
  ['/records/0/id', 'wrong_type'],
  ['/records/1/nope', 'unknown_column'],
])

// alter
const altered = told(
  await keyfold.alterTable({
    path,
    body: { changes: [{ action: 'addColumn', fieldNames: ['note'], dataType: 'STRING' }] },
  }),
)
assert.equal(altered.schema.fields.at(-1)?.name, 'note')

// drop
for (const table of ['orders', 'plain']) {
  const dropped = await keyfold.dropTable({ path: { database, table } })
  assert.equal(dropped.response?.status, 200)
}
assert.equal((await keyfold.getTable({ path })).error?.errorCode, 'table_not_found')
assert.equal((await keyfold.dropDatabase({ path: { database } })).response?.status, 200)
console.log('done')
