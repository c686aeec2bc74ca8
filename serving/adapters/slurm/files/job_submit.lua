-- interfere: jobs that ask for a shard of a GPU and name their workload start a moment later, so that the advisor can
-- place them. It fails open: nothing is called, and without an advisor such a job starts WINDOW_S later by itself.
-- Opt out of a single job: sbatch --begin=now. A site that has a job_submit.lua calls interfere_defer from its own.
local WINDOW_S = 20 -- window_s of /etc/interfere/slurm.toml

function interfere_defer(job_desc)
  local tres = job_desc.tres_per_node
  local asks = tres ~= nil and string.find(tres, "^gres[:/]shard") ~= nil and string.find(tres, ",") == nil
  local names = job_desc.comment ~= nil and string.find(job_desc.comment, "interfere:", 1, true) ~= nil
  for _, choice in ipairs({"array_inx", "features", "req_nodes", "exc_nodes", "reservation", "dependency", "admin_comment"}) do
    if job_desc[choice] ~= nil and job_desc[choice] ~= "" then return end -- left to Slurm
  end
  if job_desc.min_nodes ~= nil and job_desc.min_nodes ~= slurm.NO_VAL and job_desc.min_nodes > 1 then return end
  if job_desc.partition ~= nil and string.find(job_desc.partition, ",", 1, true) then return end
  local chosen = job_desc.begin_time ~= nil and job_desc.begin_time ~= 0 and job_desc.begin_time ~= slurm.NO_VAL64
  if asks and names and not chosen then
    job_desc.begin_time = os.time() + WINDOW_S
    job_desc.admin_comment = "interfere:deferred"
  end
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  pcall(interfere_defer, job_desc) -- whatever happens here, the job is submitted
  return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end

return slurm.SUCCESS
