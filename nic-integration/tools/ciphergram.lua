-- The clear parts of Ciphergram's datagrams, for Wireshark and tshark (PROTOCOL §2, §8.2).
--
-- Payloads are sealed and shown as such: nothing here knows a key. Nor does anything here check a tag.

local MAGIC = "CG"
local VERSION = 5
local CHANNELS = 16
local PREFIX_BYTES = 8
local HEADER_BYTES = 64
local TAG_BYTES = 16
-- Where `ciphergram serve` listens by default.
local DEFAULT_PORT = 7700

local WRITE, WRITE_IMM, SUM, ACK = 1, 2, 3, 5
local HELLO, WELCOME, COOKIE, DECLINE = 16, 17, 18, 19

local KINDS = {
  [WRITE] = "WRITE",
  [WRITE_IMM] = "WRITE_IMM",
  [SUM] = "SUM",
  [ACK] = "ACK",
  [HELLO] = "HELLO",
  [WELCOME] = "WELCOME",
  [COOKIE] = "COOKIE",
  [DECLINE] = "DECLINE",
}
local SEALED = { [WRITE] = true, [WRITE_IMM] = true, [SUM] = true, [ACK] = true }

-- What follows the prefix of a handshake datagram: names of fields and their bytes.
local HANDSHAKE = {
  [HELLO] = { { "ephemeral", 32 }, { "static", 48 }, { "noise_payload", 28 }, { "mac1", 16 }, { "mac2", 16 } },
  [WELCOME] = { { "ephemeral", 32 }, { "noise_payload", 54 }, { "mac1", 16 } },
  [COOKIE] = { { "nonce", 12 }, { "sealed", 32 } },
  [DECLINE] = { { "ephemeral", 32 }, { "noise_payload", 17 }, { "mac1", 16 } },
}

local ciphergram = Proto("ciphergram", "Ciphergram")

local fields = {
  magic = ProtoField.string("ciphergram.magic", "Magic"),
  version = ProtoField.uint8("ciphergram.version", "Version"),
  kind = ProtoField.uint8("ciphergram.kind", "Kind", base.DEC, KINDS),
  epoch = ProtoField.uint8("ciphergram.epoch", "Epoch (lowest byte)"),
  session = ProtoField.uint24("ciphergram.session", "Receiver's index of the session", base.HEX),
  channel = ProtoField.uint8("ciphergram.channel", "Channel"),
  initiator = ProtoField.uint32("ciphergram.initiator", "Initiator's index", base.HEX),
  packet = ProtoField.uint64("ciphergram.packet", "Packet"),
  message = ProtoField.uint64("ciphergram.message", "Message"),
  offset = ProtoField.uint64("ciphergram.offset", "Offset"),
  rkey = ProtoField.uint32("ciphergram.rkey", "Region (rkey)", base.HEX),
  message_bytes = ProtoField.uint32("ciphergram.message_bytes", "Message bytes"),
  start = ProtoField.uint32("ciphergram.start", "Start in the message"),
  immediate = ProtoField.uint32("ciphergram.immediate", "Immediate"),
  round = ProtoField.uint32("ciphergram.round", "Round"),
  payload_bytes = ProtoField.uint16("ciphergram.payload_bytes", "Payload bytes"),
  contributor = ProtoField.uint16("ciphergram.contributor", "Contributor"),
  reserved = ProtoField.uint32("ciphergram.reserved", "Reserved", base.HEX),
  header_tag = ProtoField.bytes("ciphergram.header_tag", "Header tag"),
  payload = ProtoField.bytes("ciphergram.payload", "Payload, sealed"),
  tag = ProtoField.bytes("ciphergram.tag", "Tag"),
  trimmed = ProtoField.bool("ciphergram.trimmed", "Trimmed"),
  ephemeral = ProtoField.bytes("ciphergram.ephemeral", "Noise: ephemeral public key"),
  static = ProtoField.bytes("ciphergram.static", "Noise: static public key, sealed"),
  noise_payload = ProtoField.bytes("ciphergram.noise_payload", "Noise: payload, sealed"),
  mac1 = ProtoField.bytes("ciphergram.mac1", "MAC under the receiver's public key"),
  mac2 = ProtoField.bytes("ciphergram.mac2", "MAC under a cookie"),
  nonce = ProtoField.bytes("ciphergram.nonce", "Nonce"),
  sealed = ProtoField.bytes("ciphergram.sealed", "Cookie, sealed"),
}
for _, field in pairs(fields) do
  table.insert(ciphergram.fields, field)
end
local function expert_info(name, text, group, severity)
  return ProtoExpert.new("ciphergram." .. name, text, group, severity)
end
local experts = {
  trimmed = expert_info("is_trimmed", "Cut to its header on the way", expert.group.SEQUENCE, expert.severity.NOTE),
  cut = expert_info("is_cut", "Ends too soon", expert.group.MALFORMED, expert.severity.WARN),
  length = expert_info("is_odd", "Not as long as it should be", expert.group.MALFORMED, expert.severity.WARN),
}
ciphergram.experts = { experts.trimmed, experts.cut, experts.length }

-- The length of a sealed datagram says whether it was trimmed. None: it is no datagram of ours.
local function kind_of(tvb)
  if tvb:captured_len() < PREFIX_BYTES or tvb(0, 2):string() ~= MAGIC or tvb(2, 1):uint() ~= VERSION then
    return nil
  end
  local kind = tvb(3, 1):uint()
  local length = tvb:reported_len()
  if SEALED[kind] then
    local fits = length == HEADER_BYTES or length >= HEADER_BYTES + TAG_BYTES
    return fits and kind or nil
  end
  -- A handshake datagram that was cut to the length of a header is shown, too.
  return HANDSHAKE[kind] and kind or nil
end

local function handshake(tvb, tree, kind)
  tree:add_le(fields.initiator, tvb(4, 4))
  local at = PREFIX_BYTES
  for _, part in ipairs(HANDSHAKE[kind]) do
    local name, bytes = part[1], part[2]
    if at + bytes > tvb:captured_len() then
      tree:add_proto_expert_info(experts.cut)
      return " [cut]"
    end
    tree:add(fields[name], tvb(at, bytes))
    at = at + bytes
  end
  if at < tvb:captured_len() then
    tree:add_proto_expert_info(experts.length)
  end
  return ""
end

-- Fields of a message; an ACK's are zeros that mean nothing.
local function message(tvb, tree, kind)
  tree:add_le(fields.message, tvb(16, 8))
  tree:add_le(fields.offset, tvb(24, 8))
  tree:add_le(fields.rkey, tvb(32, 4))
  tree:add_le(fields.message_bytes, tvb(36, 4))
  tree:add_le(fields.start, tvb(40, 4))
  local rkey, immediate = tvb(32, 4):le_uint(), tvb(44, 4):le_uint()
  if kind == SUM then
    local contributor = tvb(50, 2):le_uint()
    tree:add_le(fields.round, tvb(44, 4))
    tree:add_le(fields.contributor, tvb(50, 2))
    return string.format(" round %u contributor %u offset %s", immediate, contributor, tvb(24, 8):le_uint64())
  end
  local text = string.format(" rkey 0x%08x message %s start %u", rkey, tvb(16, 8):le_uint64(), tvb(40, 4):le_uint())
  if kind == WRITE_IMM then
    tree:add_le(fields.immediate, tvb(44, 4))
    text = text .. string.format(" immediate %u", immediate)
  end
  return text
end

local function sealed(tvb, tree, kind)
  tree:add_le(fields.epoch, tvb(4, 1))
  tree:add_le(fields.session, tvb(5, 3))
  local channel = tvb(5, 1):uint() % CHANNELS
  tree:add(fields.channel, tvb(5, 1), channel)
  tree:add_le(fields.packet, tvb(8, 8))
  local text = string.format(" channel %u packet %s", channel, tvb(8, 8):le_uint64())
  if kind ~= ACK then
    text = text .. message(tvb, tree, kind)
  end
  local announced = tvb(48, 2):le_uint()
  tree:add_le(fields.payload_bytes, tvb(48, 2))
  tree:add_le(fields.reserved, tvb(52, 4))
  tree:add(fields.header_tag, tvb(56, 8))
  text = text .. string.format(", %u bytes", announced)
  local trimmed = tvb:reported_len() == HEADER_BYTES
  tree:add(fields.trimmed, tvb(0, HEADER_BYTES), trimmed):set_generated()
  if trimmed then
    tree:add_proto_expert_info(experts.trimmed)
    return text .. " [trimmed]"
  end
  local found = tvb:captured_len() - HEADER_BYTES - TAG_BYTES
  if found > 0 then
    tree:add(fields.payload, tvb(HEADER_BYTES, found))
  end
  if found >= 0 then
    tree:add(fields.tag, tvb(HEADER_BYTES + found, TAG_BYTES))
  end
  if found ~= announced then
    tree:add_proto_expert_info(experts.length)
  end
  return text
end

function ciphergram.dissector(tvb, pinfo, tree)
  local kind = kind_of(tvb)
  -- A capture that kept less than a header has nothing to show.
  if not kind or (SEALED[kind] and tvb:captured_len() < HEADER_BYTES) then
    return 0
  end
  local root = tree:add(ciphergram, tvb())
  root:add(fields.magic, tvb(0, 2))
  root:add(fields.version, tvb(2, 1))
  root:add(fields.kind, tvb(3, 1))
  local text = KINDS[kind] .. (SEALED[kind] and sealed or handshake)(tvb, root, kind)
  root:append_text(", " .. text)
  pinfo.cols.protocol = "Ciphergram"
  pinfo.cols.info = text
  return tvb:captured_len()
end

ciphergram:register_heuristic("udp", function(tvb, pinfo, tree)
  return ciphergram.dissector(tvb, pinfo, tree) > 0
end)
DissectorTable.get("udp.port"):add(DEFAULT_PORT, ciphergram)
