// The client of one table: its columns are types.
import assert from 'node:assert/strict'
import { client } from './orders/client.gen.js'
import * as orders from './orders/sdk.gen.js'
import type { Record as Change, Row } from './orders/types.gen.js'

const [url, token] = process.argv.slice(2)
assert(url && token)
client.setConfig({ baseUrl: url, auth: () => token, headers: { prefer: 'integers=text' } })
const large = (2n ** 53n + 1n).toString()

const change: Change = { _kind: '+I', id: large, edited: '2026-03-01T10:00:00', status: 'new', total: large }
const batch = await orders.postBatch({ body: { records: [change] } })
assert.equal(batch.data?.records, 1, JSON.stringify(batch.error))

const found = await orders.getRow({ query: { key: [large] } })
const row: Row | undefined = found.data
const id: string | undefined = row?.id
assert.equal(id, large, JSON.stringify(found.error))
assert.equal(row?.total, large)

const put = await orders.patchRowByPath({ path: { key: large }, body: { edited: '2026-03-01T11:00:00', status: 'packed' } })
assert.equal(put.data?.records, 1, JSON.stringify(put.error))
const many = await orders.batchGetRows({ body: { keys: [{ id: large }] } })
assert.equal(many.data?.rows[0]?.row?.status, 'packed')

const etag = found.response?.headers.get('etag')
assert(etag)
const changed = await orders.getRow({ query: { key: [large] }, headers: { 'if-none-match': etag } })
assert.equal(changed.response?.status, 200)
const missing = await orders.getRow({ query: { key: ['404'] } })
assert.equal(missing.error?.errorCode, 'row_not_found')

// @ts-expect-error: the table has no such column
const wrong: Change = { id: large, nope: 1 }
const bad = await orders.postBatch({ body: { records: [wrong] } })
assert.equal(bad.error?.errors[0]?.code, 'unknown_column')
console.log('done')
