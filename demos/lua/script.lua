-- What the demonstrations do: a bit of everything that makes a function trace interesting.
--
-- Two threads run this at the same time, each in a Lua state of its own. It gets the name of its
-- thread and the number of the round; it must not depend on time or on addresses, so that every run
-- makes the same calls.

local who, round = ...

-- Recursion, plain and mutual.
local function fib(n)
  if n < 2 then return n end
  return fib(n - 1) + fib(n - 2)
end

local even, odd
function even(n) if n == 0 then return true end return odd(n - 1) end
function odd(n) if n == 0 then return false end return even(n - 1) end

-- Computation with tables: how many ways to put n queens on a board?
local function queens(n)
  local columns, rising, falling, found = {}, {}, {}, 0
  local function place(row)
    if row > n then found = found + 1 return end
    for column = 1, n do
      local up, down = row + column, row - column
      if not (columns[column] or rising[up] or falling[down]) then
        columns[column], rising[up], falling[down] = true, true, true
        place(row + 1)
        columns[column], rising[up], falling[down] = nil, nil, nil
      end
    end
  end
  place(1)
  return found
end

-- Allocation: a tree that is thrown away at once.
local function tree(depth)
  if depth == 0 then return {} end
  return { tree(depth - 1), tree(depth - 1) }
end

local function leaves(node)
  if not node[1] then return 1 end
  return leaves(node[1]) + leaves(node[2])
end

-- Closures and metatables.
local Account = {}
Account.__index = Account
Account.__add = function(a, b) return Account.new(a.balance + b.balance) end
function Account.new(balance) return setmetatable({ balance = balance }, Account) end
function Account:take(amount)
  if amount > self.balance then
    error(string.format("%s: only %d left", who, self.balance))
  end
  self.balance = self.balance - amount
end

local function counter()
  local n = 0
  return function() n = n + 1 return n end
end

-- Errors that cross C: table.sort calls back into Lua, which throws through it.
local function sort_of_failure()
  table.sort({ 3, 1, 2, 5, 4 }, function(a, b)
    if a + b == 7 then error("seven", 0) end
    return a < b
  end)
end

-- A coroutine that makes permutations.
local function permutations(list)
  local function permute(n)
    if n == 0 then coroutine.yield(table.concat(list)) return end
    for i = 1, n do
      list[n], list[i] = list[i], list[n]
      permute(n - 1)
      list[n], list[i] = list[i], list[n]
    end
  end
  return coroutine.wrap(function() permute(#list) end)
end

-- Strings.
local function words(text)
  local count = {}
  for word in text:lower():gmatch("%a+") do count[word] = (count[word] or 0) + 1 end
  local list = {}
  for word, n in pairs(count) do list[#list + 1] = ("%s=%d"):format(word, n) end
  table.sort(list)
  return table.concat(list, " ")
end

local results = {}
local function note(name, value) results[#results + 1] = name .. " " .. tostring(value) end

note("fib", fib(10))
note("even", even(50))
note("queens", queens(5))
note("leaves", leaves(tree(6)))

local tick = counter()
for _ = 1, 20 do tick() end
note("ticks", tick())

local account = Account.new(100) + Account.new(50)
local ok, message = pcall(account.take, account, 500)
note("refused", not ok and message:match("only %d+ left"))
note("caught", select(2, pcall(sort_of_failure)))

local seen = 0
for _ in permutations({ "a", "b", "c", "d" }) do seen = seen + 1 end
note("permutations", seen)

note("words", words("the quick brown fox jumps over the lazy dog; the dog sleeps"))
note("upper", (("kymo"):rep(4, "-"):gsub("%w+", string.upper)))

collectgarbage()
local text = table.concat(results, ", ")
print(("%s: round %d: %d results, checksum %08x"):format(who, round, #results, checksum(text)))
